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

// The open pages, each with the seconds between two looks.
const OVERVIEW = ['/', 2]
const TEN = [OVERVIEW, OVERVIEW, ['/clients', 2], ['/clients', 2], ['/clients/stuck-1', 2], ['/redelivery', 2], ['/deadlines', 2]]
TEN.push(['/dead-letters', 5], ['/settings', 5], ['/where?topic=stuck/1', 5])

// The most that ten open pages may cost, in per cent of one core.
const ALLOWED = 1

// Returns the CPU time of all threads of a process in seconds.
function cpu(pid) {
  const threads = fs.readdirSync(`/proc/${pid}/task`)
  const nanos = threads.map((thread) => Number(fs.readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]))
  return nanos.reduce((sum, each) => sum + each, 0) / 1e9
}

// Logs in, as a browser does. Returns the cookie.
async function logIn(broker) {
  const body = new URLSearchParams({ token: broker.tokens.viewer })
  const answer = await fetch(`${broker.url}/login`, { method: 'POST', body, redirect: 'manual' })
  return answer.headers.get('set-cookie').split(';')[0]
}

// Asks for a page again and again, as an open tab does. Returns the count of the answers, and how to close it.
function openPage(broker, cookie, [where, seconds]) {
  const page = { answers: 0, seconds, open: true }
  const follow = async () => {
    while (page.open) {
      const answer = await fetch(`${broker.url}${where}`, { headers: { cookie } })
      assert.strictEqual(answer.status, 200, where)
      await answer.text()
      page.answers += 1
      await sleep(seconds * 1_000)
    }
  }
  page.ended = follow()
  return page
}

// Returns the CPU time of the broker with these pages open, in per cent of one core.
async function measure(broker, cookie, wanted) {
  const pages = wanted.map((each) => openPage(broker, cookie, each))
  await sleep(2_000)
  const [before, begun] = [cpu(broker.process.pid), performance.now()]
  await sleep(SECONDS * 1_000)
  const share = (100_000 * (cpu(broker.process.pid) - before)) / (performance.now() - begun)
  for (const page of pages) {
    assert.ok(page.answers >= SECONDS / page.seconds, `a page got ${page.answers} answers only`)
    page.open = false
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
    const cookie = await logIn(broker)
    const found = { none: [], one: [], ten: [] }
    for (let round = 0; round < ROUNDS; round += 1) {
      found.none.push(await measure(broker, cookie, []))
      found.one.push(await measure(broker, cookie, [OVERVIEW]))
      found.ten.push(await measure(broker, cookie, TEN))
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
