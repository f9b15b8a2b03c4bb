// The map of a V-IPU controller: a grid of its IPUs, with partitions as blocks in their places.

import { ago, draw, make, plural } from './elements.js';
import { toPartition } from './place.js';
import { ON_MAP, STATES, UNUSED, kind, short } from './states.js';

// Size of one IPU. The patterns have the same size.
const CELL = 10;

// Most IPUs of a grid: beyond, a square would be smaller than a pixel.
const GRID_MAX = 4096;

// The number of IPUs in a row of the grid: 8 of 64.
export function columns(ipus) {
  return Math.min(64, 2 ** Math.ceil(Math.log2(Math.max(1, ipus)) / 2));
}

// The outline of the IPUs from `first` on, in a grid with this number of columns.
export function outline(first, ipus, width) {
  const last = first + ipus - 1;
  const [ax, ay, bx, by] = [first % width, Math.floor(first / width), (last % width) + 1, Math.floor(last / width) + 1];
  const at = (x, y) => `${x * CELL} ${y * CELL}`;
  const box = (x, y, right, bottom) => `M${at(x, y)}H${right * CELL}V${bottom * CELL}H${x * CELL}Z`;
  if (by - ay === 1) return box(ax, ay, bx, by);
  if (ax === 0 && bx === width) return box(0, ay, width, by);
  // Two parts that do not touch.
  if (by - ay === 2 && bx <= ax) return box(ax, ay, width, ay + 1) + box(0, by - 1, bx, by);
  return `M${at(ax, ay)}H${width * CELL}V${(by - 1) * CELL}H${bx * CELL}V${by * CELL}H0V${(ay + 1) * CELL}H${ax * CELL}Z`;
}

// What somebody sees who points at a block: the first line is its name.
function lines(one) {
  const last = one.first + one.ipus - 1;
  const at = one.first === undefined ? '' : one.ipus === 1 ? ` (${last})` : ` (${one.first} to ${last})`;
  const what = `${plural(one.ipus, 'IPU', 'IPUs')}${at}, ${short(one.state)}`;
  if (!one.partition) return [what];
  return [`${one.owner} in namespace ${one.namespace}`, what, one.created ? `${one.partition}, created ${ago(one.created)} ago` : one.partition];
}

function block(one, first, width, isFirst) {
  const tip = lines(one);
  const shape = { d: outline(first, one.ipus, width), fill: `url(#p-${kind(one.state)})` };
  if (!one.partition) return draw('path', { ...shape, 'data-tip': tip.join('\n') });
  // The arrow keys lead from one block to the next, so that a map is one stop of the Tab key.
  return draw('a', { href: toPartition(one.partition), 'aria-label': tip.join(', '), 'data-tip': tip.join('\n'), 'data-block': one.partition,
    tabindex: isFirst ? 0 : -1 }, draw('path', shape));
}

function grid(width, rows) {
  const right = Array.from({ length: width - 1 }, (_, x) => `M${(x + 1) * CELL} 0V${rows * CELL}`);
  const down = Array.from({ length: rows - 1 }, (_, y) => `M0 ${(y + 1) * CELL}H${width * CELL}`);
  return [...right, ...down].join('');
}

// The blocks whose places are known, and the others. A place that two of them claim belongs to the first.
function sorted(row, ipus) {
  const taken = new Array(ipus).fill(false);
  const [placed, loose] = [[], []];
  for (const one of row.blocks) {
    const isIn = one.first !== undefined && one.first + one.ipus <= ipus;
    if (isIn && !taken.slice(one.first, one.first + one.ipus).includes(true)) {
      taken.fill(true, one.first, one.first + one.ipus);
      placed.push(one);
    } else loose.push(one);
  }
  return [placed, loose];
}

// A grid with blocks, each with the place of its first IPU. `reserved`: the free ones are reserved. `isSparse`: others are not on it.
function picture(width, rows, label, blocks, { reserved, frame, isSparse }) {
  const outlines = blocks.map(([one, first]) => outline(first, one.ipus, width));
  const firstLink = blocks.findIndex(([one]) => one.partition);
  const element = draw('svg', { class: 'map', viewBox: `-1 -1 ${width * CELL + 2} ${rows * CELL + 2}`, role: 'group', 'aria-label': label },
    isSparse ? draw('path', { class: 'nowhere', d: grid(width, rows) }) : null,
    blocks.map(([one, first], index) => block(one, first, width, index === firstLink)),
    isSparse ? null : draw('path', { class: 'cells', d: grid(width, rows) }),
    draw('path', { class: 'edges', d: outlines.join('') }),
    reserved ? draw('path', { class: 'reserved', d: outlines.filter((_, index) => UNUSED.includes(blocks[index][0].state)).join('') }) : null,
    frame ? draw('path', { class: 'frame', d: frame }) : null);
  // One IPU has the same size on all grids of a page.
  element.style.width = `calc(${width} * var(--cell))`;
  return element;
}

// The map. Blocks whose places are not known are beside the grid.
export function map(row) {
  const counted = row.blocks.reduce((sum, one) => sum + one.ipus, 0);
  const ipus = row.total ?? 0;
  const [placed, loose] = ipus > 0 && ipus <= GRID_MAX ? sorted(row, ipus) : [[], row.blocks];
  const width = columns(ipus || counted);
  const used = row.blocks.filter((one) => one.partition);
  const label = `Map of ${row.address}: ${plural(used.length, 'partition', 'partitions')}`;
  const reserved = Boolean(row.reservedFor);
  const pictures = loose.map((one) => {
    const across = Math.min(width, columns(one.ipus));
    return picture(across, Math.ceil(one.ipus / across), `${label}, at a place that is not known`, [[one, 0]], { reserved });
  });
  if (placed.length > 0) {
    const options = { reserved, frame: outline(0, ipus, width), isSparse: loose.length > 0 };
    pictures.unshift(picture(width, Math.ceil(ipus / width), label, placed.map((one) => [one, one.first]), options));
  }
  return make('div', { class: 'places' }, pictures);
}

function swatch(name) {
  return draw('svg', { class: 'swatch', viewBox: '0 0 10 10', 'aria-hidden': 'true' },
    draw('rect', { width: 10, height: 10, fill: `url(#p-${kind(name)})` }));
}

export function legend() {
  return make('section', { class: 'legend', 'aria-labelledby': 'legend' }, make('h3', { id: 'legend' }, 'Legend'),
    make('ul', {}, ON_MAP.map((name) => make('li', {}, swatch(name), STATES[name][2]))),
    make('p', {}, 'One square is one IPU, and the squares of a partition have one edge. Blocks whose places a '
      + 'V-IPU controller has not reported are beside the grid, or without one. A broken blue line: reserved for a request that waits.'));
}
