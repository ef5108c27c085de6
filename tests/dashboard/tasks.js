// Ten tasks of an operator, each walked from the overview with at most three clicks. A question before something is lost is one more.
'use strict'

const assert = require('node:assert')
const { spawnSync } = require('node:child_process')
const path = require('node:path')
const { Client } = require('./broker.js')

const CLICKS = 3

// Days for which the certificate of the listener is valid: a moment later it has one whole day less.
const DAYS = 9

// Makes a certificate that ends soon. Returns the lines of a listener that has it.
function listenerOfTasks(folder) {
  const [certificate, key] = ['tasks.pem', 'tasks.key'].map((name) => path.join(folder, name))
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost']
  const made = spawnSync('openssl', ['req', '-x509', ...curve, '-days', `${DAYS}`, ...names, '-out', certificate, '-keyout', key])
  if (made.status !== 0) throw new Error(`no certificate: ${made.stderr}`)
  const listener = ['[[listeners]]', 'name = "secure"', 'address = "127.0.0.1:0"']
  return [...listener, '[listeners.tls]', `certificates = [{ certificate = "${certificate}", key = "${key}" }]`]
}

// Leaves a session with queued messages, of which the first is a dead letter.
async function longQueue(broker) {
  const client = await Client.connect(broker, 'tasks-away')
  await client.subscribe('tasks/#')
  client.close()
  const publisher = await Client.connect(broker, 'tasks-publisher', 4)
  for (let id = 1; id <= 20; id += 1) await publisher.publish('tasks/set', 'on', id)
  publisher.close()
  const [{ mid }] = (await broker.api('GET', '/api/v1/clients/tasks-away/queue?limit=1')).messages
  await broker.api('POST', `/api/v1/clients/tasks-away/messages/${mid}/park`)
}

// A page whose clicks are counted.
class Walk {
  constructor(page) {
    this.page = page
    this.clicks = 0
  }

  async click(locator) {
    this.clicks += 1
    await locator.click()
  }

  // Goes to a place of the navigation.
  go(name) {
    return this.click(this.page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true }))
  }

  show(name = 'Show') {
    return this.click(this.page.getByRole('button', { name, exact: true }))
  }

  // Returns the text of the first row of the list.
  first() {
    return this.page.locator('main tbody tr').first().textContent()
  }

  said(text) {
    return this.page.locator('#answer').getByText(text).waitFor()
  }
}

async function findTheStuckOne(walk) {
  await walk.click(walk.page.locator('#problems').getByRole('link', { name: 'pump-7', exact: true }))
  await walk.page.getByRole('alert').getByText('unacknowledged').first().waitFor()
}

async function findTheLongestQueue(walk) {
  await walk.go('Clients')
  await walk.click(walk.page.getByRole('link', { name: 'queued', exact: true }))
  await walk.page.locator('th[aria-sort=descending]').getByText('queued').waitFor()
  assert.match(await walk.first(), /^tasks-away/)
}

async function whyDidItNotArrive(walk) {
  await walk.go('Find a message')
  await walk.page.locator('.filter [name=topic]').fill('tasks/set')
  await walk.show('Look')
  await walk.page.getByText(/tasks-away.*receiver_away/).first().waitFor()
}

async function disconnectAUser(walk, { broker }) {
  const client = await Client.connect(broker, 'tasks-user-1', 4, 'tasks-user')
  await walk.go('Clients')
  await walk.page.locator('.filter [name=user]').fill('tasks-user')
  await walk.show()
  await walk.show('Disconnect all')
  await walk.said('1 client was disconnected.')
  await client.closed()
}

async function republishTheLettersOfAReceiver(walk) {
  await walk.go('Dead letters')
  await walk.page.locator('.filter [name=receiver]').fill('tasks-away')
  await walk.show()
  await walk.show('Republish all')
  await walk.page.getByRole('heading', { name: 'Republish 1 dead letter (receiver tasks-away)?' }).waitFor()
  // The question is no click of the way.
  await walk.page.getByRole('button', { name: 'Republish', exact: true }).click()
  await walk.said('1 dead letter is published again.')
}

async function whoChangedWhat(walk) {
  await walk.go('Audit')
  const rows = await walk.page.locator('main tbody').textContent()
  assert.match(rows, /republish dead letters.*receiver=tasks-away.*done 1/)
}

async function whatWillHappenInTheNextMinute(walk) {
  await walk.go('Deadlines')
  await walk.page.locator('#wheel-rows tr:not([hidden])').first().waitFor()
}

async function isItTheNetwork(walk) {
  await walk.go('Clients')
  await walk.click(walk.page.getByRole('link', { name: 'unacknowledged for', exact: true }))
  await walk.page.locator('th[aria-sort=descending]').getByText('unacknowledged for').waitFor()
  assert.match(await walk.first(), /the client's host has it/)
}

async function whatDoesThisRuleDo(walk) {
  await walk.go('Settings')
  await walk.page.locator('.filter [name=key]').fill('redelivery.rules')
  await walk.show()
  assert.match(await walk.page.locator('#keys tbody').textContent(), /ack_timeout = "10m", client_id = "pump-\*"/)
}

async function isMyCertificateAboutToExpire(walk) {
  await walk.go('Settings')
  await walk.click(walk.page.getByRole('link', { name: /^Checks/ }))
  assert.match(await walk.page.locator('main tbody').textContent(), new RegExp(`a certificate ends in ${DAYS - 1} days`))
}

const TASKS = [
  ['find the stuck one', findTheStuckOne],
  ['find the longest queue', findTheLongestQueue],
  ['why did it not arrive', whyDidItNotArrive],
  ['disconnect a user', disconnectAUser],
  ['republish the letters of a receiver', republishTheLettersOfAReceiver],
  ['who changed what', whoChangedWhat],
  ['what will happen in the next minute', whatWillHappenInTheNextMinute],
  ['is it the network', isItTheNetwork],
  ['what does this rule do', whatDoesThisRuleDo],
  ['is my certificate about to expire', isMyCertificateAboutToExpire],
]

// Walks all tasks on a page of an administrator.
async function walkTasks(run, page) {
  await longQueue(run.broker)
  await page.setViewportSize({ width: 1280, height: 900 })
  for (const [name, task] of TASKS) {
    await page.goto(run.broker.url)
    const walk = new Walk(page)
    try {
      await task(walk, run)
    } catch (error) {
      error.message = `${name}: ${error.message}`
      throw error
    }
    assert.ok(walk.clicks <= CLICKS, `${name} takes ${walk.clicks} clicks`)
  }
}

module.exports = { listenerOfTasks, walkTasks }
