// Keeps a page at the state of the broker: asks for the page again at its pace, and changes only what differs. Nothing moves
// under somebody who writes, selects text or is about to press a button. Without this module a page says of what time it is.

const main = document.querySelector('#main')
const banner = document.querySelector('#banner')
const pause = document.querySelector('#pause')
const pace = Number(main.dataset.pace || 0) * 1000
// A broker that does not answer by then is asked again.
const PATIENCE = 15_000

function say(text, link) {
  banner.hidden = !text
  if (banner.dataset.text === text) return
  banner.dataset.text = text
  banner.replaceChildren(text)
  if (link) {
    const anchor = document.createElement('a')
    anchor.href = link
    anchor.textContent = 'Log in again'
    banner.append(' ', anchor)
  }
}

let paused = false
let pressed = false

// True while a change would disturb the reader.
function isHeld() {
  if (paused || pressed) return true
  const focus = document.activeElement
  if (main.contains(focus) && focus.matches('input, select, textarea')) return true
  const selection = getSelection()
  if (!selection.isCollapsed && main.contains(selection.anchorNode)) return true
  return main.querySelector('button:hover') !== null
}

// True if a field of the form is not as the broker sent it.
function isDirty(form) {
  return [...form.elements].some((field) => {
    if (field.localName === 'select') {
      const first = Math.max(0, [...field.options].findIndex((option) => option.defaultSelected))
      return field.selectedIndex !== first
    }
    return field.defaultValue !== undefined && (field.value !== field.defaultValue || field.checked !== field.defaultChecked)
  })
}

// The name of a node among its siblings; null for none. A row without a name of its own has that of its first link.
function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return null
  if (node.id) return `#${node.id}`
  if (node.localName === 'form') return node.getAttribute('action')
  if (node.localName !== 'tr') return null
  const link = node.querySelector('a[href]')
  return link ? link.getAttribute('href') : node.textContent
}

const words = (element) => element.textContent.replace(/[\d.,]+/g, '')

// Makes `old` equal to `next`, and keeps the nodes that stay.
function patch(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data
    return
  }
  if (old.isEqualNode(next) || (old.localName === 'form' && isDirty(old))) return
  // The reader opens and closes it.
  const isKept = (name) => name === 'open' && old.localName === 'details'
  for (const { name } of [...old.attributes]) if (!isKept(name) && !next.hasAttribute(name)) old.removeAttribute(name)
  for (const { name, value } of next.attributes) {
    if (!isKept(name) && old.getAttribute(name) !== value) old.setAttribute(name, value)
  }
  // A screen reader does not speak again because a figure has moved.
  if (old.matches('[role=alert], [role=status]') && words(old) === words(next)) old.setAttribute('aria-live', 'off')
  patchChildren(old, next)
}

function patchChildren(old, next) {
  const focus = document.activeElement
  const wanted = new Set([...next.childNodes].map(nameOf))
  const named = new Map()
  for (const child of [...old.childNodes]) {
    const name = nameOf(child)
    if (name && wanted.has(name) && !named.has(name)) named.set(name, child)
    else if (name && !child.contains(focus)) child.remove()
  }
  let at = old.firstChild
  for (const child of [...next.childNodes]) {
    const name = nameOf(child)
    let found = name ? named.get(name) : at
    if (name) named.delete(name)
    while (!name && found && (nameOf(found) || found.nodeName !== child.nodeName)) found = found.nextSibling
    if (!found) {
      old.insertBefore(document.importNode(child, true), at)
      continue
    }
    if (found === at) at = at.nextSibling
    else old.insertBefore(found, at)
    patch(found, child)
  }
  while (at) {
    const rest = at
    at = at.nextSibling
    if (!rest.contains(focus)) rest.remove()
  }
}

function show(copy) {
  const focus = document.activeElement
  for (const id of ['status', 'as-of', 'main']) {
    const [old, next] = [document.getElementById(id), copy.getElementById(id)]
    if (old && next) patch(old, next)
  }
  // A row that moved has lost it.
  if (document.activeElement !== focus && focus.isConnected) focus.focus({ preventScroll: true })
}

let timer = 0
let asking = false
let leaving = false
function again(time) {
  clearTimeout(timer)
  timer = setTimeout(ask, time)
}

async function ask() {
  if (!pace || asking || document.hidden) return
  const held = isHeld()
  document.querySelector('#as-of').toggleAttribute('data-held', held)
  if (held) return again(500)
  asking = true
  const began = performance.now()
  const isOver = await answered().catch(() => {
    if (!leaving) say('The broker does not answer. This page shows its last state.')
  })
  asking = false
  // A broker that is slow is asked less often.
  if (!isOver) again(Math.max(pace, 4 * (performance.now() - began)))
}

// Asks for the page, and shows it. Returns true if it is not to be asked again.
async function answered() {
  const answer = await fetch(location.href, { signal: AbortSignal.timeout(PATIENCE) })
  if (answer.redirected) {
    const back = encodeURIComponent(location.pathname + location.search)
    say('Your login has ended, or the broker was restarted.', `/login?to=${back}`)
    return true
  }
  const copy = new DOMParser().parseFromString(await answer.text(), 'text/html')
  if (!answer.ok) {
    const reason = copy.querySelector('main [role=alert]')
    say(`${reason ? reason.textContent : 'The broker is busy or starting.'} This page shows the state before.`)
    return false
  }
  say('')
  if (!isHeld()) show(copy)
  return false
}

// A screen reader says only what changes after the page has come.
const answer = document.querySelector('#answer')
if (answer) {
  const said = answer.textContent
  answer.textContent = '\u00a0'
  setTimeout(() => (answer.textContent = said), 100)
}

if (pace) {
  document.documentElement.classList.add('live')
  pause.hidden = false
  pause.addEventListener('click', () => {
    paused = !paused
    pause.setAttribute('aria-pressed', String(paused))
    pause.textContent = paused ? 'Go on' : 'Pause'
    if (!paused) ask()
  })
  // A link or a button stays below a pointer that is down.
  document.addEventListener('pointerdown', () => (pressed = true))
  for (const end of ['pointerup', 'pointercancel']) document.addEventListener(end, () => (pressed = false))
  document.addEventListener('visibilitychange', () => ask())
  window.addEventListener('pagehide', () => (leaving = true))
  window.addEventListener('pageshow', (event) => {
    leaving = false
    if (event.persisted) ask()
  })
  again(pace)
}

// A one-time code of `homing ctl dashboard`. It leaves the address bar and the history at once.
function redeem() {
  const form = document.querySelector('#code-form')
  const code = form && new URLSearchParams(location.hash.slice(1)).get('code')
  if (!code) return
  history.replaceState(null, '', '/login')
  form.elements.code.value = code
  form.submit()
}

window.addEventListener('hashchange', redeem)
redeem()
