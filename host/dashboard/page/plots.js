// Plots: the trend of a number over the last day, and IPUs by state as one bar.

import { clock, draw, make } from './elements.js';
import { ON_MAP, kind, short } from './states.js';

const [WIDTH, HEIGHT] = [240, 56];
const DAY = 86400000;

// The trend of a number over the last day. Segments: start, end and value of times that are known, oldest first. Other times
// are hatched: nothing is known of them. `name` is the name of the number, and `note` says where it comes from.
export function trend(name, segments, most, show, note) {
  const end = Date.now();
  const start = end - DAY;
  const x = (time) => Math.min(WIDTH, Math.max(0, (time - start) / DAY * WIDTH));
  const top = Math.max(most, ...segments.map((one) => one.value), 1e-9);
  const y = (value) => HEIGHT - 2 - value / top * (HEIGHT - 6);
  const shown = segments.filter((one) => one.until >= start);
  let line = '';
  let area = '';
  let last = null;
  const gaps = [];
  for (const one of shown) {
    const [left, right, level] = [x(one.from), x(one.until), y(one.value)].map((number) => Math.round(number * 100) / 100);
    const isNext = last !== null && left - last < 1;
    if (!isNext) gaps.push([last ?? 0, left]);
    line += `${isNext ? 'L' : 'M'}${left} ${level}H${right}`;
    area += `M${left} ${HEIGHT}V${level}H${right}V${HEIGHT}Z`;
    last = right;
  }
  gaps.push([last ?? 0, WIDTH]);
  const unknown = gaps.filter(([from, until]) => until - from >= 1);
  const latest = shown.at(-1);
  const label = latest ? `${name}: ${show(latest.value)} now, at most ${show(Math.max(...shown.map((one) => one.value)))}. ${note}` : `${name}: no history yet`;
  const since = shown.length === 0 ? 'no history yet' : note;
  return make('div', { class: 'plot' },
    draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
      unknown.map(([from, until]) => draw('rect', { class: 'trend-unknown', x: from, y: 0, width: until - from, height: HEIGHT })),
      draw('path', { class: 'trend-area', d: area }), draw('path', { class: 'trend-line', d: line }),
      draw('path', { class: 'trend-base', d: `M0 ${HEIGHT - 0.5}H${WIDTH}` })),
    make('div', { class: 'labels' }, make('span', {}, '24 h ago'), make('span', {}, since), make('span', {}, 'now')));
}

// The hours of the accounting as segments of a trend. The last one has not ended.
export function hourly(hours, value) {
  return hours.filter((one) => value(one) !== null).map((one) => {
    const from = Date.parse(one.start);
    return { from, until: Math.min(Date.now(), from + 3600000), value: value(one) };
  });
}

// Where the hours begin, in words.
export function counted(hours) {
  return hours.length === 0 ? '' : `hourly, since ${clock(hours[0].start)}`;
}

// The samples of the dashboard as segments of a trend.
export function sampled(runs, value) {
  return runs.map((run) => ({ from: Date.parse(run.from), until: Date.parse(run.until), value: run[value] }));
}

// Since when the dashboard runs, in words.
export function followed(runs) {
  return runs.length === 0 ? '' : `seen since ${clock(runs[0].from)}`;
}

// IPUs by state as one bar.
export function stack(states, total) {
  const all = Math.max(1, total);
  let x = 0;
  const parts = ON_MAP.filter((name) => states[name] > 0).map((name) => {
    const width = states[name] / all * 400;
    const part = draw('rect', { x, y: 0, width, height: 10, fill: `url(#p-${kind(name)})` }, draw('title', {}, `${short(name)}: ${states[name]}`));
    x += width;
    return part;
  });
  const words = ON_MAP.filter((name) => states[name] > 0).map((name) => `${states[name]} ${short(name)}`).join(', ');
  return draw('svg', { class: 'stack', viewBox: '0 0 400 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': `IPUs: ${words || 'none'}` }, parts);
}
