// MQTT.js in Chromium: `browser.js URLS`, with the URLs as JSON. CHROMIUM is the path of the browser.
'use strict'

const assert = require('node:assert')
const { chromium } = require('playwright-core')

const urls = JSON.parse(process.argv[2])
const MIB = 1 << 20
const versions = [
  { name: '3.1.1', level: 4 },
  { name: '5.0', level: 5 },
]

// Runs in the page. A publisher sends texts of `size` characters to a subscriber, and the page compares them.
// Returns what arrived: [QoS, retain, is equal] of each message.
async function exchange({ url, level, topic, qos, count, size }) {
  const PATIENCE = 15_000
  const inTime = (promise, what) => {
    let timer
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`${what} did not come`)), PATIENCE)
    })
    return Promise.race([promise, late]).finally(() => clearTimeout(timer))
  }
  const connect = (role) =>
    inTime(
      new Promise((resolve, reject) => {
        const clientId = `${topic.replaceAll('/', '-')}-${role}`
        const client = window.mqtt.connect(url, { protocolVersion: level, reconnectPeriod: 0, clean: true, clientId })
        client.once('connect', () => resolve(client))
        client.once('error', reject)
        client.once('close', () => reject(new Error('closed before CONNACK')))
      }),
      'CONNACK',
    )
  // Differs from message to message, and along each message.
  const text = (n) => Array.from({ length: size }, (_, at) => String.fromCharCode(33 + ((at * 7 + (at >> 8) + n) % 90))).join('')
  const subscriber = await connect('subscriber')
  const publisher = await connect('publisher')
  const messages = []
  const arrived = new Promise((resolve) => {
    subscriber.on('message', (_topic, payload, packet) => {
      messages.push([packet.qos, packet.retain, payload.toString() === text(messages.length)])
      if (messages.length === count) resolve()
    })
  })
  const [granted] = await inTime(subscriber.subscribeAsync(topic, { qos: 2 }), 'SUBACK')
  if (granted.qos !== 2) throw new Error(`granted ${granted.qos}`)
  for (let n = 0; n < count; n += 1) await inTime(publisher.publishAsync(topic, text(n), { qos }), `the end of QoS ${qos}`)
  await inTime(arrived, 'a message')
  await inTime(subscriber.endAsync(), 'the end')
  await inTime(publisher.endAsync(), 'the end')
  return messages
}

async function open(browser, url) {
  const page = await browser.newPage()
  await page.goto(url)
  await page.waitForFunction(() => typeof window.mqtt === 'object')
  return page
}

function delivers(page, url, level, topic, { qos, count = 10, size = 20 }) {
  return async () => {
    const messages = await page.evaluate(exchange, { url, level, topic, qos, count, size })
    assert.deepStrictEqual(messages, Array.from({ length: count }, () => [qos, false, true]))
  }
}

// Chromium tells the status of a refused upgrade in the console only.
function isRefused(page, url, status) {
  return async () => {
    const line = page.waitForEvent('console', (message) => message.text().includes('Unexpected response code'))
    // It also fails if the upgrade is not refused, and then the assertion below says so.
    line.catch(() => {})
    const refused = page.evaluate(exchange, { url, level: 5, topic: 'refused', qos: 0, count: 1, size: 1 })
    await assert.rejects(refused)
    const text = (await line).text()
    assert.ok(text.includes(`Unexpected response code: ${status}`), text)
  }
}

async function cases(browser) {
  const own = await open(browser, urls.page)
  const foreign = await open(browser, urls.foreignPage)
  const all = []
  for (const scheme of ['ws', 'wss']) {
    const url = `${urls[scheme]}/mqtt`
    for (const { name, level } of versions) {
      const add = (what, options) => {
        const topic = `browser/${scheme}/${name}/${what}`
        all.push([`${scheme} ${name} ${what}`, delivers(own, url, level, topic, options)])
      }
      for (const qos of [0, 1, 2]) add(`qos_${qos}`, { qos })
      // limits.outbox is 1 MiB: the broker may drop a second message of QoS 0 while the first one waits for the socket.
      for (const qos of [0, 1, 2]) add(`one_mebibyte_qos_${qos}`, { qos, count: qos === 0 ? 1 : 2, size: MIB })
    }
    all.push([`${scheme} wrong_origin`, isRefused(foreign, url, 403)])
    all.push([`${scheme} wrong_path`, isRefused(own, `${urls[scheme]}/other`, 404)])
    // The broker still admits the right page.
    all.push([`${scheme} right_origin_and_path`, delivers(own, url, 5, `browser/${scheme}/again`, { qos: 1 })])
  }
  const url = `${urls.sameHost}/mqtt`
  all.push(['ws page_of_the_same_host', delivers(own, url, 5, 'browser/same-host', { qos: 1 })])
  all.push(['ws page_of_another_host', isRefused(foreign, url, 403)])
  return all
}

async function main() {
  const args = ['--no-sandbox', '--ignore-certificate-errors', '--disable-dev-shm-usage']
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args })
  let failed = false
  try {
    console.log(`Chromium ${browser.version()}`)
    for (const [name, run] of await cases(browser)) {
      const begun = performance.now()
      try {
        await run()
        console.log(`ok    Chromium ${name} (${((performance.now() - begun) / 1000).toFixed(2)} s)`)
      } catch (error) {
        failed = true
        console.log(`FAIL  Chromium ${name}\n${error.stack}`)
      }
    }
  } finally {
    await browser.close()
  }
  process.exit(failed ? 1 : 0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
