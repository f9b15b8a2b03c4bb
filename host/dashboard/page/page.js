// The page of `kubectl ipu dashboard`: reads what the URL names, draws it, and follows the changes.

import { UserError, text } from './api.js';
import { draw, make } from './elements.js';
import { exchange, watchPointer } from './hold.js';
import { keys } from './keys.js';
import { NAMES, link, namespace, place, sources } from './place.js';
import { patterns } from './states.js';
import { tips } from './tip.js';
import { VIEWS } from './views.js';

// Milliseconds between two reads without a change, and between a change and its read.
const REFRESH = 30000;
const PAUSE = 1000;

const main = document.getElementById('main');
const help = document.getElementById('help');
const commands = document.getElementById('commands');
const field = document.getElementById('namespace');

// What is on the page: the texts that were read, so that the same is not drawn again.
let drawn = '';
let reading = null;
let waits = null;
let held = false;
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
    const paths = sources(here);
    const read = await Promise.all(paths.map((path) => text(path, signal)));
    const key = [...paths, ...read].join('\n');
    if (drawn !== key || waits) {
      performance.mark('read');
      const view = VIEWS[here.view].draw(read.map((one) => JSON.parse(one)), here);
      if (replace(here, view, waits)) {
        waits = null;
        drawn = key;
        say('status', view.summary);
      } else {
        say('status', 'The page has changed. It shows the changes when the pointer leaves the rows, because they would move.');
      }
    }
    if (!ended) say('alert', '');
  } catch (error) {
    if (signal.aborted) return;
    if (waits) {
      drawn = '';
      replace(here, { title: VIEWS[here.view].title, commands: [], parts: [] }, waits);
      waits = null;
    }
    say('status', '');
    say('alert', error.message);
    if (!(error instanceof UserError)) throw error;
  } finally {
    if (!signal.aborted) main.setAttribute('aria-busy', 'false');
  }
}

// Puts a view on the page. Returns false if the pointer is on a row that would move: then it is drawn later.
function replace({ view }, { title, commands: same, parts }, moved) {
  const button = same.length > 0 ? make('button', { type: 'button', 'aria-haspopup': 'dialog' }, 'kubectl') : null;
  button?.addEventListener('click', () => commands.showModal());
  held = !exchange(main, make('div', {}, make('div', { class: 'title' }, make('h2', {}, title), button), parts), moved !== null && moved !== undefined);
  if (held) return false;
  main.getBoundingClientRect();
  performance.clearMeasures('drawn');
  if (performance.getEntriesByName('read').length > 0) performance.measure('drawn', 'read');
  performance.clearMarks('read');
  document.getElementById('same').replaceChildren(...same.map((command) => make('code', {}, command)));
  document.title = `${title} – IPUs`;
  for (const one of document.querySelectorAll('#views a')) {
    if (one.dataset.view === view) one.setAttribute('aria-current', 'page');
    else one.removeAttribute('aria-current');
  }
  if (moved === 'focus') main.focus({ preventScroll: true });
  return true;
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
  for (const name of ['error', 'open']) events.addEventListener(name, () => { if (!ended) soon(); });
}

// Shows the place of the URL, once.
function go() {
  if (at === location.href) return;
  at = location.href;
  field.value = namespace();
  hideTip();
  show('focus');
}

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
document.body.append(patterns(draw));
document.getElementById('views').append(...NAMES.map((view) => make('li', {}, make('a', { href: link(view), 'data-view': view }, VIEWS[view].title))));
field.value = namespace();
const hideTip = tips(main);
watchPointer(main, () => { if (held) show(); });
keys({ main, field, help, commands });
show('first');
follow();
setInterval(() => show(), REFRESH);
