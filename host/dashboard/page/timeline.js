// A time axis with a lane for each object, and marks for events.

import { clock, draw, duration, make } from './elements.js';
import { kind } from './states.js';

const [WIDTH, HEIGHT] = [600, 20];

// Least width of a span: a state that lasted for less than a pixel was there, too.
const LEAST = 2;

function seconds(from, until) {
  return Math.max(0, Math.round((until - from) / 1000));
}

// An axis from a time to another one, in milliseconds.
export function axis(start, end) {
  const length = Math.max(1000, end - start);
  return { start, end: start + length, x: (time) => Math.min(WIDTH, Math.max(0, (time - start) / length * WIDTH)) };
}

// The spans of one object. Each: the state whose colour it has, its words, its start and its end, if it has ended.
export function lane(on, name, spans) {
  const ended = spans.map((one) => ({ ...one, from: Date.parse(one.from), until: one.until ? Date.parse(one.until) : on.end }));
  const words = ended.map((one) => `${one.words} for ${duration(seconds(one.from, one.until))} from ${clock(one.from)}`);
  const rects = ended.map((one, index) => {
    const left = Math.min(on.x(one.from), WIDTH - LEAST);
    return draw('rect', { x: left, y: 3, width: Math.max(LEAST, on.x(one.until) - left), height: HEIGHT - 6, fill: `url(#p-${kind(one.state)})`,
      class: 'span', 'data-tip': `${one.words}\n${words[index]}` });
  });
  return draw('svg', { class: 'lane', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': `${name}: ${words.join(', ') || 'no time is known'}` }, draw('rect', { class: 'rail', x: 0, y: HEIGHT / 2 - 0.5, width: WIDTH, height: 1 }), rects);
}

// Events as marks: those of warnings are higher.
export function marks(on, events) {
  const lines = events.map((one) => {
    const isWarning = one.type === 'Warning';
    const high = isWarning ? HEIGHT : HEIGHT / 2;
    return draw('rect', { class: isWarning ? 'event is-failure' : 'event', x: Math.min(WIDTH - 3, on.x(Date.parse(one.time))), y: HEIGHT - high, width: 3, height: high,
      'data-tip': `${one.reason}\n${clock(one.time)} ${one.object}: ${one.message}` });
  });
  const warnings = events.filter((one) => one.type === 'Warning').length;
  return draw('svg', { class: 'lane', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': `${events.length} events, ${warnings} of them warnings` }, draw('rect', { class: 'rail', x: 0, y: HEIGHT - 1, width: WIDTH, height: 1 }), lines);
}

// The axis and its lanes, each a name and a picture.
export function timeline(on, rows) {
  const middle = (on.start + on.end) / 2;
  const tick = (time) => make('span', {}, clock(time), ' ', make('span', { class: 'dim' }, `+${duration(seconds(on.start, time))}`));
  return make('div', { class: 'timeline' },
    make('div', { class: 'name' }), make('div', { class: 'ticks' }, tick(on.start), tick(middle), tick(on.end)),
    rows.map(([name, picture]) => [make('div', { class: 'name' }, name), picture]));
}
