// The queue: a bar for each request, as long as it waits and as thick as it is large, in the order in which they are served.

import { age, draw, duration, lacks, make, plural, table } from './elements.js';
import { map } from './map.js';
import { pages } from './parts.js';
import { inNamespace, namespace, toOwner, toPartition } from './place.js';

// Size of a bar's drawing, and thickness of a bar by its IPUs: one for each doubling.
const [WIDTH, HEIGHT] = [400, 28];
const thickness = (ipus) => Math.min(HEIGHT, 4 + 3 * Math.log2(Math.max(1, ipus)));

function waits(one) {
  return one.created ? Math.max(0, Math.floor((Date.now() - Date.parse(one.created)) / 1000)) : 0;
}

function bar(one, longest) {
  const length = Math.max(3, waits(one) / longest * WIDTH);
  const high = thickness(one.ipus);
  const label = `${plural(one.ipus, 'IPU', 'IPUs')}, waits for ${duration(waits(one))}`;
  return draw('svg', { class: 'bar', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    draw('rect', { class: 'lane', x: 0, y: HEIGHT / 2 - 0.5, width: WIDTH, height: 1 }),
    draw('rect', { x: WIDTH - length, y: (HEIGHT - high) / 2, width: length, height: high }));
}

function reasons(one) {
  const all = one.reasons.map((reason) => {
    const more = reason.count - reason.controllers.length;
    return `${reason.controllers.join(', ')}${more > 0 ? ` and ${more} more` : ''}: ${reason.reason}`;
  });
  if (one.moreReasons > 0) all.push(`${one.moreReasons} more V-IPU controllers have other reasons`);
  if (one.message) all.push(one.message);
  return all;
}

function why(one) {
  const all = reasons(one);
  const fit = one.largestFit === undefined ? null : `A new request with the same node selector would get at most ${plural(one.largestFit, 'IPU', 'IPUs')} now.`;
  if (all.length === 0 && !fit) return null;
  if (all.length === 0) return make('p', {}, fit);
  return make('details', { 'data-open': one.name }, make('summary', {}, all[0]), make('ul', {}, all.slice(1).map((line) => make('li', {}, line)), fit ? make('li', {}, fit) : null));
}

function reservation(one, reservations) {
  const own = reservations.filter((other) => other.owner === `${one.owner.namespace}/${one.owner.name}`);
  return own.map(({ controller }) => make('div', { class: 'reservation' },
    map(controller), make('span', {}, `The free IPUs of ${controller.address} are reserved for it: it starts there when enough of them are free.`)));
}

function request(one, longest, oldest, reservations) {
  const gang = one.gangSize ? `, one of ${one.gangSize} that start together` : '';
  const href = toOwner(one.owner) ?? toPartition(one.name);
  return make('li', { 'data-key': one.name, class: one === oldest && 'is-oldest' },
    make('span', { class: 'position' }, `${one.position}`),
    make('div', { class: 'who' }, make('a', { href, 'data-row': one.name }, `${one.owner.namespace}/${one.owner.name}`),
      make('div', { class: 'dim' }, one.owner.kind === 'IPUJob' ? null : `${one.owner.kind}, `, plural(one.ipus, 'IPU', 'IPUs'), gang)),
    bar(one, longest), make('span', { class: 'age' }, age(one.created)),
    make('div', { class: 'why' }, why(one), reservation(one, reservations)));
}

function blocked(read) {
  if (read.total === 0) return null;
  const rows = read.rows.map((one) => [make('a', { href: toOwner({ ...one, kind: 'IPUJob' }) }, `${one.namespace}/${one.name}`), one.reason, age(one.since), one.message]);
  const more = read.total - read.rows.length;
  const columns = [['IPUJob', false], ['Reason', false], ['Since', true], ['Message', false]];
  return [table('IPUJobs that wait for something other than IPUs', columns, rows),
    more > 0 ? make('p', {}, `${plural(more, 'more job waits', 'more jobs wait')} for something other than IPUs.`) : null];
}

export function drawQueue([read]) {
  const fit = read.largestFit && (read.largestFit.controller
    ? `The largest partition that a new request would get now has ${plural(read.largestFit.ipus, 'IPU', 'IPUs')}, on ${read.largestFit.controller} (an estimate; what is reserved for the requests below does not count).`
    : 'No V-IPU controller is open to new partitions.');
  const longest = Math.max(1, ...read.rows.map(waits));
  const oldest = read.rows.reduce((first, one) => (first && waits(first) >= waits(one) ? first : one), null);
  const axis = make('li', {}, make('span', {}), make('span', { class: 'dim' }, 'in the order of the queue'),
    make('div', { class: 'axis' }, make('span', {}, `${duration(longest)} ago`), make('span', {}, 'now')), make('span', { class: 'age dim' }, 'waits'));
  return {
    title: 'Queue',
    summary: `${plural(read.waiting, 'request waits', 'requests wait')} for ${plural(read.waitingIpus, 'IPU', 'IPUs')}${namespace() ? `; ${read.total}${inNamespace()}` : ''}`,
    commands: ['kubectl get ipupartitions --sort-by=.metadata.creationTimestamp', 'kubectl ipu why JOB'],
    parts: [lacks(read.notShown), fit ? make('p', {}, fit) : null,
      read.rows.length > 0 ? [make('ol', { class: 'queue' }, axis, read.rows.map((one) => request(one, longest, oldest, read.reservations))),
        make('p', { class: 'dim' }, 'A bar is as long as its request waits, and thicker for more IPUs. A later, smaller request can be served first.')] : null,
      pages(read), blocked(read.blocked)],
  };
}
