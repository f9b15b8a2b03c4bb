// The states of IPUs: letter, class and name of each, and the pattern that shows it without its colour.

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
export const ON_MAP = ['running', 'ready', 'forming', 'resetting', 'releasing', 'error', 'others', 'free', 'stranded', 'unknown'];

// States of IPUs in no partition of the operator, or of none that is known.
export const UNUSED = ['free', 'stranded', 'unknown'];

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

export function kind(name) {
  return (STATES[name] ?? STATES.unknown)[1];
}

export function words(name) {
  return (STATES[name] ?? STATES.unknown)[2];
}

export function short(name) {
  return words(name).split(':')[0];
}

// The strokes of each pattern, in a square of 10 that repeats: the size of one IPU on a map. Free and running IPUs have none.
const STROKES = {
  ready: 'M0 5H10',
  forming: 'M0 10L10 0',
  resetting: 'M0 0L10 10',
  releasing: 'M5 0V10',
  error: 'M1 1L9 9M9 1L1 9',
  others: 'M0 3H10M0 7H10',
  unknown: 'M5 2V8M2 5H8',
  stranded: 'M4 4H6V6H4Z',
  waiting: 'M2 2H3M7 7H8',
};

// The patterns as definitions for `fill`. `draw` makes an element of SVG.
export function patterns(draw) {
  const of = (name) => draw('pattern', { id: `p-${name}`, width: 10, height: 10, patternUnits: 'userSpaceOnUse', class: `s-${name}` },
    draw('rect', { width: 10, height: 10, stroke: 'none' }),
    STROKES[name] ? draw('path', { d: STROKES[name], class: 'mark' }) : null);
  const time = draw('pattern', { id: 'unknown-time', width: 6, height: 6, patternUnits: 'userSpaceOnUse' },
    draw('path', { d: 'M0 6L6 0', class: 'unknown-time' }));
  return draw('svg', { width: 0, height: 0, 'aria-hidden': 'true', focusable: 'false' }, draw('defs', {}, ON_MAP.map(of), of('waiting'), time));
}
