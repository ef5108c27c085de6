// MQTT.js, in every version that it speaks: `mqttjs.js URL [CASE...]`. The environment (NODE_EXTRA_CA_CERTS) names the authority.
'use strict'

const assert = require('node:assert')
const mqtt = require('mqtt')

// How long anything that must come may take, milliseconds.
const PATIENCE = 15_000

const [url, ...chosen] = process.argv.slice(2)
const { protocol } = new URL(url)
// How the output calls this client.
const label = protocol === 'mqtt:' ? 'MQTT.js' : `MQTT.js ${protocol.slice(0, -1)}`

function inTime(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come`)), PATIENCE)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// A connected client whose messages are kept until they are asked for.
class Peer {
  static async connect({ name, level }, role, options = {}) {
    const clean = options.clean ?? true
    const all = { clientId: `mqttjs-${name}-${role}`, protocolVersion: level, reconnectPeriod: 0, clean, ...options }
    if (level === 3) all.protocolId = 'MQIsdp'
    if (level === 5) all.properties = { sessionExpiryInterval: clean ? 0 : 3600, ...options.properties }
    const peer = new Peer()
    peer.received = []
    peer.waiting = []
    peer.client = mqtt.connect(url, all)
    peer.client.on('message', (_topic, payload, packet) => {
      const message = [packet.qos, packet.retain, payload.toString()]
      const waiting = peer.waiting.shift()
      if (waiting) waiting(message)
      else peer.received.push(message)
    })
    peer.connack = await inTime(
      new Promise((resolve, reject) => {
        peer.client.once('connect', resolve)
        peer.client.once('error', reject)
      }),
      'CONNACK',
    )
    return peer
  }

  async subscribe(topic, qos = 2) {
    const granted = await inTime(this.client.subscribeAsync(topic, { qos }), 'SUBACK')
    assert.deepStrictEqual(granted.map((each) => each.qos), [qos])
    return this
  }

  publish(topic, text, qos, retain = false) {
    return inTime(this.client.publishAsync(topic, text, { qos, retain }), `the end of QoS ${qos}`)
  }

  message() {
    if (this.received.length > 0) return Promise.resolve(this.received.shift())
    return inTime(new Promise((resolve) => this.waiting.push(resolve)), 'a message')
  }

  stop() {
    return inTime(this.client.endAsync(), 'the end')
  }

  // Its socket closes without DISCONNECT.
  die() {
    this.client.stream.destroy()
  }
}

const texts = (count) => Array.from({ length: count }, (_, n) => `message ${n}`)

const atQos = (qos) => async (version, topic) => {
  const subscriber = await (await Peer.connect(version, 'subscriber')).subscribe(topic)
  const publisher = await Peer.connect(version, 'publisher')
  for (const text of texts(10)) await publisher.publish(topic, text, qos)
  for (const text of texts(10)) assert.deepStrictEqual(await subscriber.message(), [qos, false, text])
  await subscriber.stop()
  await publisher.stop()
}

const cases = {
  async connect(version) {
    const peer = await Peer.connect(version, 'connect')
    assert.strictEqual(Boolean(peer.connack.sessionPresent), false)
    await peer.stop()
  },
  qos_0: atQos(0),
  qos_1: atQos(1),
  qos_2: atQos(2),
  async retained(version, topic) {
    const publisher = await Peer.connect(version, 'publisher')
    await publisher.publish(topic, 'kept', 1, true)
    const late = await (await Peer.connect(version, 'late')).subscribe(topic)
    assert.deepStrictEqual(await late.message(), [1, true, 'kept'])
    await publisher.publish(topic, '', 1, true)
    await late.stop()
    await publisher.stop()
  },
  async will(version, topic) {
    const observer = await (await Peer.connect(version, 'observer')).subscribe(topic)
    const will = { topic, payload: 'gone', qos: 1, retain: false }
    const mortal = await Peer.connect(version, 'mortal', { will })
    mortal.die()
    assert.deepStrictEqual(await observer.message(), [1, false, 'gone'])
    await observer.stop()
  },
  async persistent_session(version, topic) {
    const absentee = await (await Peer.connect(version, 'absentee', { clean: false })).subscribe(topic, 1)
    await absentee.stop()
    const publisher = await Peer.connect(version, 'publisher')
    for (const text of texts(10)) await publisher.publish(topic, text, 1)
    const back = await Peer.connect(version, 'absentee', { clean: false })
    // 3.1 has no Session Present.
    assert.ok(back.connack.sessionPresent || version.level === 3)
    for (const text of texts(10)) assert.deepStrictEqual(await back.message(), [1, false, text])
    await back.stop()
    await publisher.stop()
    await (await Peer.connect(version, 'absentee')).stop()
  },
  async shared_subscription(version, topic) {
    const members = [await Peer.connect(version, 'member0'), await Peer.connect(version, 'member1')]
    for (const member of members) await member.subscribe(`$share/group/${topic}`, 1)
    const sent = texts(20)
    const received = members.map(() => [])
    let arrived = 0
    const everything = new Promise((resolve) => {
      members.forEach((member, n) => {
        member.client.on('message', (_topic, payload) => {
          received[n].push(payload.toString())
          arrived += 1
          if (arrived === sent.length) resolve()
        })
      })
    })
    const publisher = await Peer.connect(version, 'publisher')
    for (const text of sent) await publisher.publish(topic, text, 1)
    await inTime(everything, 'a shared message')
    for (const peer of [...members, publisher]) await peer.stop()
    assert.deepStrictEqual(received.flat().sort(), sent.sort())
    assert.ok(received.every((own) => own.length > 0), `a member got nothing: ${JSON.stringify(received)}`)
  },
}

// Where nothing is resent on a live connection.
const onlyV5 = {
  async comes_back_after_an_ack_timeout(version, topic) {
    const options = { clean: false, reconnectPeriod: 100, properties: { userProperties: { 'ack-timeout': '1s' } } }
    const forgetful = await (await Peer.connect(version, 'forgetful', options)).subscribe(topic, 1)
    const { client } = forgetful
    const packets = []
    const arrived = new Promise((resolve) => {
      client.on('packetreceive', (packet) => {
        if (packet.cmd !== 'publish') return
        packets.push(packet)
        if (packets.length === 2) resolve()
      })
    })
    // An application that never says that it is done with a message: MQTT.js then holds its PUBACK, and all that follows.
    const { handleMessage } = client
    client.handleMessage = () => {}
    const back = new Promise((resolve) => client.once('connect', resolve))
    client.once('close', () => {
      client.handleMessage = handleMessage
    })
    const publisher = await Peer.connect(version, 'publisher')
    await publisher.publish(topic, 'held', 1)
    const connack = await inTime(back, 'the return')
    assert.strictEqual(connack.sessionPresent, true)
    await inTime(arrived, 'the message at the return')
    const [first, again] = packets
    assert.deepStrictEqual([first.dup, again.dup], [false, true])
    assert.deepStrictEqual([again.messageId, again.payload.toString()], [first.messageId, 'held'])
    // The client did not read the reason: it was disconnected for its ack timeout.
    await publisher.subscribe('$homing/clients/mqttjs-5.0-forgetful/last-disconnect', 0)
    const [, , record] = await publisher.message()
    assert.strictEqual(JSON.parse(record).cause, 'ack_timeout')
    await forgetful.stop()
    await publisher.stop()
    await (await Peer.connect(version, 'forgetful')).stop()
  },
}

const versions = [
  { name: '3.1', level: 3 },
  { name: '3.1.1', level: 4 },
  { name: '5.0', level: 5 },
]

async function main() {
  let failed = false
  for (const version of versions) {
    const all = version.level === 5 ? { ...cases, ...onlyV5 } : cases
    for (const [name, run] of Object.entries(all)) {
      if (chosen.length > 0 && !chosen.includes(name)) continue
      const begun = performance.now()
      try {
        await run(version, `mqttjs/${version.name}/${name}`)
        console.log(`ok    ${label} ${version.name} ${name} (${((performance.now() - begun) / 1000).toFixed(2)} s)`)
      } catch (error) {
        failed = true
        console.log(`FAIL  ${label} ${version.name} ${name}\n${error.stack}`)
      }
    }
  }
  // Connections that a failed case left open do not keep it alive.
  process.exit(failed ? 1 : 0)
}

main()
