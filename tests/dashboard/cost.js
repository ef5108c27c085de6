// The cost of open pages: `cost.js HOMING`. Measures the CPU time of an idle broker with no page open, with one and with ten.
'use strict'

const assert = require('node:assert')
const fs = require('node:fs')
const { setTimeout: sleep } = require('node:timers/promises')
const { Broker, Client, deaf } = require('./broker.js')

const SESSIONS = 1_000
const STUCK = 20
const ROUNDS = 3
const SECONDS = 10

// The streams of open pages. The overview, the lists and the page of a client have the first one, the timeline and the wheel the others.
const WHEEL = 'overview,wheel'
const TEN = [WHEEL, WHEEL, 'overview,timeline', 'overview,timeline', ...Array(6).fill('overview')]

// The most that ten open pages may cost, in per cent of one core.
const ALLOWED = 1

// Returns the CPU time of all threads of a process in seconds.
function cpu(pid) {
  const threads = fs.readdirSync(`/proc/${pid}/task`)
  const nanos = threads.map((thread) => Number(fs.readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]))
  return nanos.reduce((sum, each) => sum + each, 0) / 1e9
}

// Opens the stream of a page as a browser does. Returns the count of its events, and how to close it.
async function openPage(broker, streams) {
  const page = { events: 0, stop: new AbortController() }
  const headers = { authorization: `Bearer ${broker.tokens.viewer}` }
  const answer = await fetch(`${broker.url}/api/v1/events?streams=${streams}`, { headers, signal: page.stop.signal })
  assert.strictEqual(answer.status, 200)
  const read = async () => {
    for await (const bytes of answer.body) page.events += Buffer.from(bytes).toString().split('\nevent: ').length
  }
  page.ended = read().catch((error) => assert.strictEqual(error.name, 'AbortError'))
  return page
}

// Returns the CPU time of the broker with these pages open, in per cent of one core.
async function measure(broker, streams) {
  const pages = await Promise.all(streams.map((each) => openPage(broker, each)))
  await sleep(2_000)
  const [before, begun] = [cpu(broker.process.pid), performance.now()]
  await sleep(SECONDS * 1_000)
  const share = (100_000 * (cpu(broker.process.pid) - before)) / (performance.now() - begun)
  for (const page of pages) {
    assert.ok(page.events >= SECONDS, `a page got ${page.events} events only`)
    page.stop.abort()
    await page.ended
  }
  return share
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]

async function main() {
  const broker = new Broker(process.argv[2])
  broker.settings = ['[redelivery]', 'ack_timeout = "10m"']
  let failed = false
  try {
    await broker.start()
    const clients = []
    for (let n = 0; n < SESSIONS; n += 1) clients.push(await Client.connect(broker, `client-${n}`))
    for (let n = 0; n < STUCK; n += 1) clients.push(await deaf(broker, `stuck-${n}`, 5, `stuck/${n}`))
    // A client is stuck after 10 s.
    await sleep(12_000)
    const found = { none: [], one: [], ten: [] }
    for (let round = 0; round < ROUNDS; round += 1) {
      found.none.push(await measure(broker, []))
      found.one.push(await measure(broker, [WHEEL]))
      found.ten.push(await measure(broker, TEN))
    }
    const [none, one, ten] = [found.none, found.one, found.ten].map(median)
    const text = (share) => `${share.toFixed(2)} %`
    console.log(`${SESSIONS} connected clients, ${STUCK} of them stuck; CPU of the broker in per cent of one core, medians of ${ROUNDS}:`)
    console.log(`no page ${text(none)}, one ${text(one)}, ten ${text(ten)}; ten pages cost ${text(ten - none)}, allowed are ${text(ALLOWED)}`)
    failed = ten - none > ALLOWED
    for (const client of clients) client.close()
  } finally {
    await broker.stop()
    broker.remove()
  }
  process.exit(failed ? 1 : 0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
