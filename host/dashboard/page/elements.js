// Elements of the page. Texts of objects become text and nothing else.

// Letter, class and name of each state of IPUs.
export const STATES = {
  free: ['.', 'free', 'free'],
  stranded: ['s', 'stranded', 'stranded: free, but too small for every request that waits'],
  forming: ['f', 'forming', 'forming: the partition is being created'],
  ready: ['r', 'ready', 'ready: the partition can be used'],
  running: ['R', 'running', 'running: its IPUJob runs'],
  resetting: ['~', 'resetting', 'resetting'],
  releasing: ['-', 'releasing', 'releasing: the partition is being removed'],
  error: ['!', 'error', 'error'],
  others: ['o', 'others', 'in partitions that the operator has not created'],
  unknown: ['?', 'unknown', 'unknown: the V-IPU controller does not answer, or the status does not contain the state'],
  waiting: ['w', 'waiting', 'waiting for free IPUs'],
  rejected: ['x', 'rejected', 'rejected: no V-IPU controller can ever create it'],
};

// States that the map shows, in the order of the legend.
export const ON_MAP = ['free', 'stranded', 'forming', 'ready', 'running', 'resetting', 'releasing', 'error', 'others', 'unknown'];

// States of the accounting: key, letter, class and name.
export const ALLOCATED = [
  ['running', 'R', 'running', 'running'],
  ['waitingPods', 'r', 'ready', 'waiting for Pods'],
  ['idleAllocated', 'i', 'stranded', 'idle, allocated'],
  ['forming', 'f', 'forming', 'forming'],
  ['resetting', '~', 'resetting', 'resetting'],
  ['releasing', '-', 'releasing', 'releasing'],
];
export const UNALLOCATED = [
  ['free', '.', 'free', 'free'],
  ['stranded', 's', 'stranded', 'stranded'],
  ['unhealthy', '!', 'error', 'unhealthy'],
  ['others', 'o', 'others', 'others'],
  ['unknown', '?', 'unknown', 'unknown'],
];

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

// A table in a region that scrolls. Columns: name, and whether it has numbers. Rows: arrays of cells, the first of which
// is the header of the row.
export function table(caption, columns, rows) {
  const head = columns.map(([name, isNumber]) => make('th', { scope: 'col', class: isNumber && 'number' }, name));
  const body = rows.map((cells) => make('tr', {}, cells.map((cell, index) => {
    const kind = columns[index][1] && 'number';
    return index === 0 ? make('th', { scope: 'row' }, cell) : make('td', { class: kind }, cell);
  })));
  const element = make('table', {}, make('caption', {}, caption), make('thead', {}, make('tr', {}, head)), make('tbody', {}, body));
  return make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, element);
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return make('dl', {}, shown.map(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
}

export function kubectl(...commands) {
  return commands.map((command) => make('p', { class: 'kubectl' }, 'The same with kubectl: ', make('code', {}, command)));
}

export function lacks(words) {
  if (!words || words.length === 0) return null;
  return make('section', { class: 'lacks', 'aria-labelledby': 'lacks' },
    make('h3', { id: 'lacks' }, 'Not shown'), make('ul', {}, words.map((one) => make('li', {}, one))));
}

export function state(name, count = 1) {
  const [letter, kind, words] = STATES[name] ?? STATES.unknown;
  return make('span', { class: `block s-${kind}`, role: 'img', 'aria-label': words }, letter.repeat(count));
}

export function named(name) {
  const words = (STATES[name] ?? STATES.unknown)[2].split(':')[0];
  return [state(name), ` ${words}`];
}

export function age(time) {
  if (!time) return '';
  const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(time)) / 1000));
  let words = `${Math.floor(seconds / 86400)}d`;
  if (seconds < 120) words = `${seconds}s`;
  else if (seconds < 7200) words = `${Math.floor(seconds / 60)}m`;
  else if (seconds < 172800) words = `${Math.floor(seconds / 3600)}h`;
  return make('time', { datetime: time, title: new Date(time).toLocaleString() }, words);
}

export function hours(seconds) {
  return (seconds / 3600).toFixed(1);
}

export function share(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : '–';
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}
