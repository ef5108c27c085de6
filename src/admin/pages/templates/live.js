// Live parts of the pages. Without this module a page shows the state at the time of its request.

const wanted = new Set()
for (const each of document.querySelectorAll('[data-stream]')) wanted.add(each.dataset.stream)
for (const each of document.querySelectorAll('[data-refresh]')) wanted.add(each.dataset.refresh)
// A trace has no stream of its own here: its page follows the seconds of the overview.
if (wanted.delete('trace') || document.querySelector('[data-live]')) wanted.add('overview')

const banner = document.querySelector('#banner')
let source = null
let again = 0

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

function close() {
  if (source) source.close()
  source = null
  clearTimeout(again)
}

function open() {
  if (source || document.hidden || wanted.size === 0) return
  source = new EventSource(`/api/v1/events?streams=${[...wanted].join(',')}`)
  source.onopen = () => {
    // What happened while nobody listened is missing from the page.
    if (banner.dataset.text) refresh('timeline')
    say('')
  }
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return say('The broker does not answer. This page shows its last state.')
    close()
    // A browser does not say why a stream was refused.
    fetch('/login/state').then(
      (answer) => {
        if (answer.status === 401) return say('Your login has ended, or the broker was restarted.', `/login?to=${encodeURIComponent(location.pathname + location.search)}`)
        say('The broker is busy or starting. This page shows its last state.')
        again = setTimeout(open, 3000)
      },
      () => {
        say('The broker does not answer. This page shows its last state.')
        again = setTimeout(open, 3000)
      },
    )
  }
  source.addEventListener('overview', (event) => overview(JSON.parse(event.data)))
  source.addEventListener('wheel', (event) => wheel(JSON.parse(event.data)))
  source.addEventListener('timeline', () => refresh('timeline'))
  source.addEventListener('lagged', () => refresh('timeline'))
}

const put = (element, text) => {
  if (element.textContent !== text) element.textContent = text
}

// A screen reader hears of a changed problem every five seconds at most.
let problemAt = 0
let kindsBefore
function overview({ ready, readiness, values, curves, problem, kinds }) {
  if (kindsBefore !== undefined && kindsBefore !== kinds.join()) refresh('overview')
  kindsBefore = kinds.join()
  if (document.querySelector('[data-refresh=trace]')) refresh('trace')
  for (const [key, value] of Object.entries(values)) {
    for (const element of document.querySelectorAll(`[data-live="${key}"]`)) {
      if (key === 'stuck' && element.textContent !== value) refresh('overview')
      put(element, value)
    }
  }
  for (const line of document.querySelectorAll('[data-curve]')) {
    const curve = curves[line.dataset.curve]
    if (!curve) continue
    line.setAttribute('points', curve.points)
    put(document.querySelector(`[data-words="${line.dataset.curve}"]`), curve.words)
  }
  for (const element of document.querySelectorAll('[data-live="readiness"]')) {
    element.className = ready ? 'ready' : 'problem'
    put(element, readiness)
  }
  const place = document.querySelector('[data-live="problem"]')
  if (!place || performance.now() - problemAt < 5000) return
  problemAt = performance.now()
  const anchor = problem && problem.link ? document.createElement('a') : null
  if (anchor) {
    anchor.href = problem.link
    anchor.textContent = problem.text
  }
  place.replaceChildren(anchor || (problem ? problem.text : ''))
}

let paused = false
function wheel({ keys, overdue, later, kinds, bars }) {
  if (paused) return
  const number = (value) => value.toLocaleString('en')
  for (const [name, value] of Object.entries({ keys, overdue, later })) {
    for (const element of document.querySelectorAll(`[data-wheel="${name}"]`)) put(element, number(value))
  }
  const foot = document.querySelector('#wheel-rows + tfoot tr')
  ;[keys, ...kinds].forEach((value, cell) => put(foot.cells[cell + 1], number(value)))
  const sums = bars.map((bar) => bar.reduce((sum, each) => sum + each, 0))
  const rows = document.querySelectorAll('#wheel-rows tr')
  sums.forEach((sum, at) => {
    const row = rows[at]
    row.hidden = sum === 0
    ;[sum, ...bars[at]].forEach((value, cell) => put(row.cells[cell + 1], number(value)))
  })
}

// Takes the parts of a stream from a new copy of this page, at most every two seconds.
const due = new Set()
let timer = 0
function refresh(stream) {
  due.add(stream)
  if (!timer) timer = setTimeout(fetchParts, 2000)
}

async function fetchParts() {
  timer = 0
  const streams = [...due]
  due.clear()
  const answer = await fetch(location.href).catch(() => null)
  if (!answer || !answer.ok || answer.redirected) return
  const copy = new DOMParser().parseFromString(await answer.text(), 'text/html')
  for (const old of document.querySelectorAll('[data-refresh]')) {
    const now = copy.getElementById(old.id)
    // A part in which somebody writes or moves with the keyboard stays.
    if (now && streams.includes(old.dataset.refresh) && !old.contains(document.activeElement)) old.replaceWith(now)
  }
}

// A screen reader says only what changes after the page has come.
const answer = document.querySelector('#answer')
if (answer) {
  const said = answer.textContent
  answer.textContent = '\u00a0'
  setTimeout(() => (answer.textContent = said), 100)
}

const pause = document.querySelector('#pause')
if (pause) {
  pause.hidden = false
  pause.addEventListener('click', () => {
    paused = !paused
    pause.setAttribute('aria-pressed', String(paused))
    pause.textContent = paused ? 'Go on' : 'Pause'
  })
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

document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()))
window.addEventListener('pagehide', close)
window.addEventListener('pageshow', open)
open()
