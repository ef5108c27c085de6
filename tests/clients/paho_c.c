/*
 * Eclipse Paho's client for C, with MQTT 3.1.1 and 5.0: `paho_c mqtt://... | mqtts://... USER PASSWORD`.
 * The environment (SSL_CERT_FILE) names the authority. Each case is a process of its own. It ends at
 * the first check that fails, or by an alarm if it hangs.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <MQTTClient.h>

/* How long one step may take, and a whole case. */
#define PATIENCE_MS 15000
#define CASE_SECONDS 60
#define MESSAGES 10

static const char *url, *user, *password;
static int version;
static bool is_5(void) { return version == MQTTVERSION_5; }
static const char *version_name(void) { return is_5() ? "5.0" : "3.1.1"; }

/* Ends the process if `holds` is false, and prints why. */
static void check(bool holds, const char *format, ...)
{
    va_list arguments;
    if (holds) return;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(1);
}

/* Returns the reason code of a response, and frees the response. */
static int code_of(MQTTResponse response)
{
    int code = (int)response.reasonCode;
    MQTTResponse_free(response);
    return code;
}

/* A client, with the code and Session Present of its CONNACK. */
struct peer {
    MQTTClient client;
    int code;
    bool session_present;
};

static struct peer connect_as(const char *role, bool keeps_session, const char *will_topic, const char *secret)
{
    struct peer peer;
    MQTTClient_createOptions creation = MQTTClient_createOptions_initializer;
    MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
    MQTTClient_willOptions will = MQTTClient_willOptions_initializer;
    MQTTClient_SSLOptions tls = MQTTClient_SSLOptions_initializer;
    char id[100];
    snprintf(id, sizeof id, "paho-c-%s-%s", version_name(), role);
    creation.MQTTVersion = options.MQTTVersion = version;
    peer.code = MQTTClient_createWithOptions(&peer.client, url, id, MQTTCLIENT_PERSISTENCE_NONE, NULL, &creation);
    check(peer.code == MQTTCLIENT_SUCCESS, "cannot make a client: %d", peer.code);
    MQTTClient_setCommandTimeout(peer.client, PATIENCE_MS);
    options.connectTimeout = PATIENCE_MS / 1000;
    options.reliable = 0; /* Several messages may be in flight. */
    options.username = user;
    options.password = secret;
    will.topicName = will_topic;
    will.message = "message 0";
    will.qos = 1;
    options.will = will_topic ? &will : NULL;
    tls.trustStore = getenv("SSL_CERT_FILE");
    tls.verify = 1; /* The library also compares the name in the certificate. */
    options.ssl = &tls;
    if (is_5()) {
        MQTTProperties properties = MQTTProperties_initializer;
        MQTTProperty expiry = {.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL, .value.integer4 = keeps_session ? 3600 : 0};
        MQTTProperties_add(&properties, &expiry);
        options.cleansession = 0;
        options.cleanstart = !keeps_session;
        peer.code = code_of(MQTTClient_connect5(peer.client, &options, &properties, NULL));
        MQTTProperties_free(&properties);
    } else {
        options.cleansession = !keeps_session;
        peer.code = MQTTClient_connect(peer.client, &options);
    }
    peer.session_present = options.returned.sessionPresent;
    return peer;
}

static struct peer connected(const char *role, bool keeps_session, const char *will_topic)
{
    struct peer peer = connect_as(role, keeps_session, will_topic, password);
    check(peer.code == 0, "%s was refused: %d", role, peer.code);
    return peer;
}

static void subscribe(struct peer peer, const char *topic, int qos)
{
    int code = is_5() ? code_of(MQTTClient_subscribe5(peer.client, topic, qos, NULL, NULL))
                      : MQTTClient_subscribe(peer.client, topic, qos);
    /* For 3.1.1 the library returns 0, whatever QoS was granted. */
    check(code == (is_5() ? qos : 0), "no SUBACK for QoS %d: %d", qos, code);
}

/* Publishes "message 0" and so on, and waits for the last acknowledgement of each one. */
static void publish(struct peer peer, const char *topic, int qos)
{
    MQTTClient_deliveryToken tokens[MESSAGES];
    for (int n = 0; n < MESSAGES; n += 1) {
        char text[40];
        int length = snprintf(text, sizeof text, "message %d", n);
        int code = is_5() ? code_of(MQTTClient_publish5(peer.client, topic, length, text, qos, 0, NULL, &tokens[n]))
                          : MQTTClient_publish(peer.client, topic, length, text, qos, 0, &tokens[n]);
        check(code == 0, "cannot publish \"%s\" at QoS %d: %d", text, qos, code);
    }
    for (int n = 0; n < MESSAGES && qos > 0; n += 1) {
        int code = MQTTClient_waitForCompletion(peer.client, tokens[n], PATIENCE_MS);
        check(code == MQTTCLIENT_SUCCESS, "QoS %d was not acknowledged: %d", qos, code);
    }
}

/* Waits for "message 0" and so on, in this order. */
static void expect(struct peer peer, int count, int qos)
{
    for (int n = 0; n < count; n += 1) {
        MQTTClient_message *message = NULL;
        char *topic = NULL, text[40];
        int of_topic = 0, length = snprintf(text, sizeof text, "message %d", n);
        int code = MQTTClient_receive(peer.client, &topic, &of_topic, &message, PATIENCE_MS);
        check(code == MQTTCLIENT_SUCCESS && message, "no \"%s\": %d", text, code);
        check(message->payloadlen == length && !memcmp(message->payload, text, (size_t)length), "another message than \"%s\"", text);
        check(message->qos == qos && !message->retained, "\"%s\" came with QoS %d, retain %d", text, message->qos, message->retained);
        MQTTClient_freeMessage(&message);
        MQTTClient_free(topic);
    }
}

static void stop(struct peer peer)
{
    int code = is_5() ? MQTTClient_disconnect5(peer.client, PATIENCE_MS, MQTTREASONCODE_SUCCESS, NULL)
                      : MQTTClient_disconnect(peer.client, PATIENCE_MS);
    check(code == MQTTCLIENT_SUCCESS, "cannot disconnect: %d", code);
    MQTTClient_destroy(&peer.client);
}

/* Two clients send to each other. */
static void both_ways(const char *topic, int qos)
{
    struct peer sides[] = {connected("left", false, NULL), connected("right", false, NULL)};
    for (int receiver = 0; receiver < 2; receiver += 1) {
        char own[200];
        snprintf(own, sizeof own, "%s/%d", topic, receiver);
        subscribe(sides[receiver], own, 2);
        publish(sides[1 - receiver], own, qos);
        expect(sides[receiver], MESSAGES, qos);
    }
    stop(sides[0]);
    stop(sides[1]);
}

/* Messages are queued for a client that is away. */
static void session(const char *topic, int qos)
{
    struct peer absentee = connected("absentee", true, NULL), publisher = connected("publisher", false, NULL);
    check(!absentee.session_present, "a session was there before");
    subscribe(absentee, topic, qos);
    stop(absentee);
    publish(publisher, topic, qos);
    absentee = connected("absentee", true, NULL);
    /* The library does not return Session Present for 5.0. There the messages prove the session. */
    check(absentee.session_present || is_5(), "the session is gone");
    expect(absentee, MESSAGES, qos);
    stop(absentee);
    stop(publisher);
    stop(connected("absentee", false, NULL)); /* Ends the session. */
}

/* Waits for the end of a process that has an alarm. Returns true if the process succeeded. */
static bool succeeded(pid_t process)
{
    int status;
    return process > 0 && waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void will(const char *topic, int qos)
{
    struct peer observer = connected("observer", false, NULL);
    subscribe(observer, topic, qos);
    pid_t mortal = fork();
    if (mortal == 0) {
        alarm(CASE_SECONDS);
        connected("mortal", false, topic);
        _exit(0); /* The kernel closes the socket, without DISCONNECT. */
    }
    check(succeeded(mortal), "the client with a will has failed");
    expect(observer, 1, qos);
    stop(observer);
}

static void wrong_password(const char *topic, int qos)
{
    struct peer stranger = connect_as("stranger", false, NULL, "wrong");
    check(stranger.code == (is_5() ? MQTTREASONCODE_NOT_AUTHORIZED : 5), "a wrong password leads to %d", stranger.code);
    both_ways(topic, qos); /* The right one is accepted afterwards. */
}

static bool passes(const char *name, void (*body)(const char *topic, int qos), int qos)
{
    char topic[200];
    struct timespec from, to;
    snprintf(topic, sizeof topic, "paho-c/%s/%s", version_name(), name);
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &from);
    pid_t process = fork();
    if (process == 0) {
        alarm(CASE_SECONDS);
        body(topic, qos);
        _exit(0);
    }
    bool passed = succeeded(process);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    printf("%s  paho-c%s %s %s (%.2f s)\n", passed ? "ok  " : "FAIL", user ? " mqtts" : "", version_name(), name, seconds);
    return passed;
}

int main(int count, char **arguments)
{
    int failed = 0;
    check(count == 2 || count == 4, "usage: paho_c mqtt://... | mqtts://... USER PASSWORD");
    url = arguments[1];
    user = arguments[2]; /* NULL if there is none. */
    password = user ? arguments[3] : NULL;
    for (version = MQTTVERSION_3_1_1; version <= MQTTVERSION_5; version += 1) {
        failed += !passes("qos_0", both_ways, 0);
        failed += !passes("qos_1", both_ways, 1);
        failed += !passes("qos_2", both_ways, 2);
        failed += !passes("persistent_session_qos_1", session, 1);
        failed += !passes("persistent_session_qos_2", session, 2);
        failed += !passes("will", will, 1);
        if (user)
            failed += !passes("wrong_password", wrong_password, 1);
    }
    return failed > 0;
}
