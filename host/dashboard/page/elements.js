// Elements of the page. Texts of objects become text and nothing else.

import { STATES, kind, short } from './states.js';

function add(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    // Text becomes a node of text, whatever is in it.
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return add(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return add(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

// A table in a region that scrolls. Columns: name, and whether it is of numbers or only on wide screens. Rows: arrays of
// cells, the first of which is the header of the row.
export function table(caption, columns, rows) {
  const classes = columns.map(([, of]) => (of === true ? 'number' : of || undefined));
  const head = columns.map(([name], index) => make('th', { scope: 'col', class: classes[index] }, name));
  const body = rows.map((cells) => {
    const key = cells[0] instanceof Element ? cells[0].getAttribute('data-row') : String(cells[0]);
    return make('tr', { 'data-key': key }, cells.map((cell, index) => (index === 0
      ? make('th', { scope: 'row', class: classes[0] }, cell) : make('td', { class: classes[index] }, cell))));
  });
  const element = make('table', {}, make('caption', {}, caption), make('thead', {}, make('tr', {}, head)), make('tbody', {}, body));
  return make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, element);
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return make('dl', {}, shown.map(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
}

export function lacks(words) {
  if (!words || words.length === 0) return null;
  return make('section', { class: 'lacks', 'aria-labelledby': 'lacks' },
    make('h3', { id: 'lacks' }, 'Not shown'), make('ul', {}, words.map((one) => make('li', {}, one))));
}

// The state of a partition as a coloured word with its letter.
export function chip(name) {
  const [letter] = STATES[name] ?? STATES.unknown;
  return make('span', { class: `chip s-${kind(name)}` }, `${letter} ${short(name)}`);
}

// How bad a problem is, as a word.
export function severity(name) {
  return make('span', { class: `severity is-${name}` }, name);
}

function seconds(from, until = Date.now()) {
  return Math.max(0, Math.floor((until - Date.parse(from)) / 1000));
}

// A duration in one unit, as kubectl shows it.
export function duration(all) {
  if (all < 120) return `${all}s`;
  if (all < 7200) return `${Math.floor(all / 60)}m`;
  if (all < 172800) return `${Math.floor(all / 3600)}h`;
  return `${Math.floor(all / 86400)}d`;
}

export function ago(time) {
  return time ? duration(seconds(time)) : '';
}

export function age(time) {
  if (!time) return '';
  return make('time', { datetime: time, title: new Date(time).toLocaleString() }, ago(time));
}

export function clock(time) {
  return new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
}

export function hours(all) {
  return (all / 3600).toFixed(1);
}

export function share(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : '–';
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}
