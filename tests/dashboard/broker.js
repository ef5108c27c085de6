// The broker with tokens, and MQTT clients that do as a test says. Everything is on loopback, on free ports.
'use strict'

const { spawn, spawnSync } = require('node:child_process')
const fs = require('node:fs')
const net = require('node:net')
const os = require('node:os')
const path = require('node:path')

const PATIENCE = 15_000

class Broker {
  // Makes a folder with a token for each scope, and with the user ann.
  constructor(homing) {
    this.homing = homing
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'homing-dashboard-'))
    const file = path.join(this.folder, 'credentials')
    fs.writeFileSync(file, '')
    this.tokens = {}
    for (const scope of ['viewer', 'operator', 'admin']) {
      const made = spawnSync(homing, ['admin-token', file, `${scope}-of-the-test`, '--scope', scope], { encoding: 'utf8' })
      const token = made.stdout.match(/hmg_\S+/)
      if (!token) throw new Error(`no token: ${made.stdout}${made.stderr}`)
      this.tokens[scope] = token[0]
    }
    this.password = 'a word of ann'
    const user = spawnSync(homing, ['admin-user', file, 'ann', '--scope', 'operator', '--stdin'], { input: this.password, encoding: 'utf8' })
    if (user.status !== 0) throw new Error(`no user: ${user.stdout}${user.stderr}`)
    this.configuration = path.join(this.folder, 'homing.toml')
    this.admin = '127.0.0.1:0'
    this.mqtt = '127.0.0.1:0'
    this.settings = []
  }

  // Writes the configuration, with the addresses of the last start. `more` are lines of tables that `settings` does not have.
  configure(more = []) {
    const text = [
      '[network]',
      `listen = ["${this.addresses.mqtt}"]`,
      '[store]',
      `path = "${path.join(this.folder, 'data')}"`,
      '[admin]',
      `addresses = ["${this.addresses.admin}"]`,
      `credentials = "${path.join(this.folder, 'credentials')}"`,
      ...this.settings,
      ...more,
    ]
    fs.writeFileSync(this.configuration, `${text.join('\n')}\n`)
  }

  // Starts the broker; at a second start on the ports of the first one.
  async start() {
    this.addresses = { mqtt: this.mqtt, admin: this.admin }
    this.configure()
    this.log = ''
    // The client ids of one case are longer than the default allows.
    const args = ['serve', '--config', this.configuration, '--set', 'limits.client_id=60 KiB']
    this.process = spawn(this.homing, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.setEncoding('utf8')
      stream.on('data', (text) => {
        this.log += text
      })
    }
    const admin = await this.logged(/http:\/\/([0-9.]+:[0-9]+)/)
    const mqtt = await this.logged(/(?:listening on *)([0-9.]+:[0-9]+)/)
    this.admin = admin[1]
    this.mqtt = mqtt[1]
    this.url = `http://${this.admin}`
  }

  // Waits for a line of the log.
  async logged(pattern) {
    const end = Date.now() + PATIENCE
    while (Date.now() < end) {
      const found = this.log.match(pattern)
      if (found) return found
      if (this.process.exitCode !== null) break
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    throw new Error(`the broker did not write ${pattern}:\n${this.log}`)
  }

  async stop() {
    if (!this.process || this.process.exitCode !== null) return
    const ended = new Promise((resolve) => this.process.once('exit', resolve))
    this.process.kill('SIGTERM')
    await ended
  }

  remove() {
    fs.rmSync(this.folder, { recursive: true, force: true })
  }

  // Asks the HTTP interface with the token of a scope, and returns the JSON of the answer.
  async api(method, where, scope = 'admin') {
    const answer = await fetch(`${this.url}${where}`, { method, headers: { authorization: `Bearer ${this.tokens[scope]}` } })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${where}: ${answer.status} ${text}`)
    return text && answer.headers.get('content-type').includes('json') ? JSON.parse(text) : text
  }

  // Runs `homing ctl`, and returns what it prints.
  ctl(...command) {
    const made = spawnSync(this.homing, ['ctl', '--socket', path.join(this.folder, 'data', 'homing.sock'), ...command], {
      encoding: 'utf8',
    })
    if (made.status !== 0) throw new Error(`homing ctl ${command.join(' ')}: ${made.stdout}${made.stderr}`)
    return made.stdout
  }
}

const text = (value) => {
  const bytes = Buffer.from(value)
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes])
}

const packet = (first, ...parts) => {
  const body = Buffer.concat(parts)
  const length = []
  let left = body.length
  do {
    length.push((left & 127) | (left > 127 ? 128 : 0))
    left >>= 7
  } while (left > 0)
  return Buffer.concat([Buffer.from([first, ...length]), body])
}

// A client that acknowledges messages only if it is told to.
class Client {
  // `level` is 4 or 5. The session outlives the connection. A client without a user is anonymous.
  static async connect(broker, id, level = 5, user = '') {
    const client = new Client()
    client.level = level
    client.received = []
    client.bytes = Buffer.alloc(0)
    client.waiting = []
    client.acknowledges = false
    const [host, port] = broker.mqtt.split(':')
    client.socket = net.connect(Number(port), host)
    client.socket.on('error', () => {})
    client.socket.on('data', (bytes) => client.read(bytes))
    const properties = level === 5 ? Buffer.from([5, 0x11, 0, 0, 14, 16]) : Buffer.alloc(0)
    client.socket.write(packet(0x10, text('MQTT'), Buffer.from([level, user ? 0x80 : 0, 0, 0]), properties, text(id), user ? text(user) : Buffer.alloc(0)))
    await client.expect((each) => each[0] >> 4 === 2, 'CONNACK')
    return client
  }

  read(bytes) {
    this.bytes = Buffer.concat([this.bytes, bytes])
    for (;;) {
      let [length, shift, at] = [0, 0, 1]
      for (;;) {
        if (at >= this.bytes.length) return
        const byte = this.bytes[at]
        length += (byte & 127) << shift
        shift += 7
        at += 1
        if (byte < 128) break
      }
      if (this.bytes.length < at + length) return
      const whole = [this.bytes[0], this.bytes.subarray(at, at + length)]
      this.bytes = this.bytes.subarray(at + length)
      this.received.push(whole)
      if (whole[0] >> 4 === 3 && this.acknowledges) this.acknowledge(whole)
      for (const check of this.waiting) check()
    }
  }

  // Waits for a packet, and returns it.
  expect(matches, what) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => end(() => reject(new Error(`${what} did not come`))), PATIENCE)
      const end = (then) => {
        clearTimeout(timer)
        this.waiting = this.waiting.filter((each) => each !== check)
        then()
      }
      const check = () => {
        const found = this.received.find(matches)
        if (found) end(() => resolve(found))
      }
      this.waiting.push(check)
      check()
    })
  }

  async subscribe(filter, qos = 1) {
    const properties = this.level === 5 ? [0] : []
    this.socket.write(packet(0x82, Buffer.from([0, 1, ...properties]), text(filter), Buffer.from([qos])))
    await this.expect((each) => each[0] >> 4 === 9, 'SUBACK')
  }

  // Publishes at QoS 1, and waits for PUBACK.
  async publish(topic, payload, id = 1, retain = false) {
    const properties = this.level === 5 ? [0] : []
    const number = Buffer.from([id >> 8, id & 255, ...properties])
    this.socket.write(packet(retain ? 0x33 : 0x32, text(topic), number, Buffer.from(payload)))
    await this.expect((each) => each[0] >> 4 === 4 && each[1].readUInt16BE(0) === id, 'PUBACK')
  }

  // Waits for a PUBLISH. Returns it.
  message(duplicate = false) {
    return this.expect((each) => each[0] >> 4 === 3 && (!duplicate || (each[0] & 8) !== 0), 'PUBLISH')
  }

  acknowledge([, body]) {
    const topic = body.readUInt16BE(0)
    this.socket.write(packet(0x40, body.subarray(2 + topic, 4 + topic)))
  }

  closed() {
    if (this.socket.destroyed) return Promise.resolve()
    return new Promise((resolve) => this.socket.once('close', resolve))
  }

  close() {
    this.socket.destroy()
  }
}

// A client with one message that it never acknowledges.
async function deaf(broker, id, level = 5, topic = 'pumps/7/set') {
  const client = await Client.connect(broker, id, level)
  await client.subscribe(topic)
  const publisher = await Client.connect(broker, `publisher-for-${Buffer.from(id).toString('hex').slice(0, 40)}`, 4)
  await publisher.publish(topic, 'on')
  await client.message()
  publisher.close()
  return client
}

module.exports = { Broker, Client, deaf, PATIENCE }
