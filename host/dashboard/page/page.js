// The page of `kubectl ipu dashboard`: reads what the URL names, draws it, and follows the changes.

import { UserError, text } from './api.js';
import { make } from './elements.js';
import { NAMES, link, namespace, place, source } from './place.js';
import { VIEWS } from './views.js';

// Milliseconds between two reads without a change, and between a change and its read.
const REFRESH = 30000;
const PAUSE = 1000;

const main = document.getElementById('main');
const help = document.getElementById('help');
const field = document.getElementById('namespace');

// What is on the page: the text that was read, so that the same is not drawn again.
let drawn = '';
let reading = null;
let waits = null;
let at = location.href;
let timer = 0;
let ended = false;

// Reads what the place shows, and draws it if it has changed. `moved`: somebody went there, and waits for it.
async function show(moved) {
  reading?.abort();
  reading = new AbortController();
  const { signal } = reading;
  // A read that replaces another one serves the caller that waits for that one.
  waits = moved ?? waits;
  const here = place();
  main.setAttribute('aria-busy', 'true');
  try {
    const path = source(here);
    const read = await text(path, signal);
    const isSame = drawn === path + read;
    if (!isSame || waits) {
      const { summary, parts } = await VIEWS[here.view].draw(JSON.parse(read), here, signal);
      if (signal.aborted) return;
      replace(here, parts, waits);
      waits = null;
      say('status', summary);
      drawn = path + read;
    }
    if (!ended) say('alert', '');
  } catch (error) {
    if (signal.aborted) return;
    if (waits) {
      drawn = '';
      replace(here, [], waits);
      waits = null;
    }
    say('status', '');
    say('alert', error.message);
    if (!(error instanceof UserError)) throw error;
  } finally {
    if (!signal.aborted) main.setAttribute('aria-busy', 'false');
  }
}

// Puts parts on the page. The focus stays on its row.
function replace({ view, item }, parts, moved) {
  const row = document.activeElement?.getAttribute('data-row');
  const name = VIEWS[view].title;
  const title = item ? `${name} ${item}` : name;
  const holder = make('div', {}, make('h2', {}, title), parts);
  main.replaceChildren(holder);
  document.title = `${title} – IPUs`;
  for (const one of document.querySelectorAll('#views a')) {
    if (one.dataset.view === view) one.setAttribute('aria-current', 'page');
    else one.removeAttribute('aria-current');
  }
  if (moved === 'focus') main.focus({ preventScroll: true });
  else if (row) rows().find((one) => one.getAttribute('data-row') === row)?.focus({ preventScroll: true });
}

// An announcement is read aloud when its words change, and not when they are put there again.
function say(id, words) {
  const element = document.getElementById(id);
  if (element.textContent !== words) element.textContent = words;
}

function soon() {
  if (timer === 0) {
    timer = setTimeout(() => {
      timer = 0;
      show();
    }, PAUSE);
  }
}

// ---- events of the server ----

function follow() {
  const events = new EventSource('api/events');
  events.addEventListener('changed', (event) => {
    const { views } = JSON.parse(event.data);
    if (VIEWS[place().view].of.some((one) => views.includes(one))) soon();
  });
  events.addEventListener('ended', (event) => {
    // Without this the browser would ask again and again.
    events.close();
    ended = true;
    say('alert', `This page does not follow the cluster any more: ${JSON.parse(event.data).message}`);
    soon();
  });
  // The next read finds out whether the server answers.
  events.addEventListener('error', () => {
    if (!ended) soon();
  });
  events.addEventListener('open', () => {
    if (!ended) soon();
  });
}

// Shows the place of the URL, once.
function go() {
  if (at === location.href) return;
  at = location.href;
  field.value = namespace();
  show('focus');
}

// ---- keys ----

function rows() {
  return [...main.querySelectorAll('[data-row]')];
}

function move(step) {
  const all = rows();
  const now = all.indexOf(document.activeElement);
  const next = now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + step));
  all[next]?.focus();
}

const KEYS = {
  '/': () => field.focus(),
  j: () => move(1),
  k: () => move(-1),
  n: () => main.querySelector('a[rel="next"]')?.click(),
  p: () => main.querySelector('a[rel="prev"]')?.click(),
  '?': () => help.showModal(),
};

document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof HTMLInputElement || help.open;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = NAMES[Number(event.key) - 1];
  const act = view ? () => { location.hash = link(view); } : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// ---- start ----

document.getElementById('filter').addEventListener('submit', (event) => {
  event.preventDefault();
  const value = field.value.trim();
  const search = value ? `?namespace=${encodeURIComponent(value)}` : '';
  // The first page of the rows: there may be fewer now.
  const { view, item } = place();
  const hash = item ? location.hash : link(view);
  history.pushState(null, '', `${location.pathname}${search}${hash}`);
  go();
});
document.getElementById('help-open').addEventListener('click', () => help.showModal());
document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
// Browsers report a link and the back button by one of these events, or by both.
window.addEventListener('hashchange', go);
window.addEventListener('popstate', go);
document.getElementById('views').append(...NAMES.map((view) => make('li', {}, make('a', { href: link(view), 'data-view': view }, VIEWS[view].title))));
field.value = namespace();
show('first');
follow();
setInterval(() => show(), REFRESH);
