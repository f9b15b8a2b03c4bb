// The first page: how full the machines are, who waits longest, what was useful, and what needs somebody.

import { age, ago, lacks, make, plural, severity, share } from './elements.js';
import { tile } from './controllers.js';
import { inNamespace, link, namespace, toOwner, toPartition } from './place.js';
import { counted, followed, hourly, sampled, stack, trend } from './plots.js';

function percent(part, whole) {
  return whole > 0 ? `${Math.round(100 * part / whole)} %` : '–';
}

function card(title, href, kinds, ...parts) {
  return make('section', { class: `card ${kinds}`, 'aria-label': title }, make('h3', {}, make('a', { href, 'data-row': title }, title)), parts);
}

function figure(number, words) {
  return make('p', { class: 'figure' }, make('strong', {}, number), ' ', words);
}

// A card about something that the user may not list: the page says what, below Not shown.
function unknown(title, href, ...parts) {
  return card(title, href, '', figure('?', 'not known: see Not shown'), parts);
}

function inUse({ ipus, hours, known }) {
  const segments = hourly(hours, (one) => (one.all > 0 ? 100 * one.used / one.all : null));
  const plot = trend('Share of IPUs in use', segments, 100, (value) => `${Math.round(value)} %`, counted(hours));
  if (!known.controllers || !known.partitions) return unknown('IPUs', link('controllers'), plot);
  return card('IPUs', link('controllers'), '', figure(percent(ipus.used, ipus.total), `full: ${ipus.used} of ${ipus.total} IPUs in use`),
    stack(ipus.states, ipus.total), plot);
}

function waiting({ waiting: now, past, known }) {
  const about = namespace() ? ' (all namespaces)' : '';
  const plot = trend('Requests that wait', sampled(past, 'waiting'), 1, String, followed(past) + about);
  const title = 'Queue';
  if (!known.partitions) return unknown(title, link('queue'), plot);
  const { oldest } = now;
  const line = oldest ? [make('a', { href: toPartition(oldest.name) }, `${oldest.owner.namespace}/${oldest.owner.name}`),
    ` waits longest: ${plural(oldest.ipus, 'IPU', 'IPUs')}, ${ago(oldest.created)}`] : 'No request waits for IPUs.';
  const blocked = now.blocked > 0 ? make('p', { class: 'dim' }, `${plural(now.blocked, 'job waits', 'jobs wait')} for something other than IPUs`) : null;
  return card(title, link('queue'), oldest ? 'is-warning' : '',
    figure(now.requests, `${now.requests === 1 ? 'request waits' : 'requests wait'} for ${plural(now.ipus, 'IPU', 'IPUs')}`),
    make('p', { class: oldest ? 'lead' : '' }, line), blocked, plot);
}

function goodput({ hours, known }) {
  const sum = (key) => hours.reduce((all, one) => all + one[key], 0);
  const [allocated, running] = [sum('allocated'), sum('running')];
  const segments = hourly(hours, (one) => (one.allocated > 0 ? 100 * one.running / one.allocated : null));
  const title = 'Goodput of the last day';
  const plot = trend('Goodput', segments, 100, (value) => `${Math.round(value)} %`, counted(hours));
  if (!known.controllers) return unknown(title, link('goodput'), plot);
  return card(title, link('goodput'), '',
    figure(percent(running, allocated), 'of the allocated IPU-hours ran'),
    make('p', {}, allocated > 0 ? `${Math.round(running / 3600)} of ${Math.round(allocated / 3600)} IPU-hours in partitions` : 'No IPU-hour is counted yet.'), plot);
}

function about(problem) {
  const href = { partition: toPartition(problem.name), controller: link('partitions', { controller: problem.name }),
    node: link('partitions', { controller: problem.controller }) }[problem.subject];
  return make('a', { href }, problem.name);
}

function attention({ attention: now, past, known }) {
  const title = 'Needs somebody';
  const href = link('controllers', { sort: 'problems' });
  const plot = trend('Problems', sampled(past, 'attention'), 1, String, followed(past));
  if (!known.controllers || !known.partitions) return unknown(title, href, plot);
  const worst = now.rows[0];
  const isBad = now.total > 0;
  const line = isBad ? [about(worst), `: ${worst.message}`] : known.nodes ? 'Every V-IPU controller and every node that reaches one answers.' : 'Every V-IPU controller answers. Nodes are not known.';
  const notices = now.notices > 0 ? make('p', { class: 'dim' }, plural(now.notices, 'notice', 'notices')) : null;
  return card(title, href, isBad ? `is-${worst.severity}` : 'is-good',
    figure(now.total, now.total === 1 ? 'problem' : 'problems'), make('p', { class: isBad ? 'lead' : '' }, line), notices, plot);
}

function problems({ rows }) {
  if (rows.length === 0) return null;
  return make('section', { class: 'card', 'aria-labelledby': 'problems' }, make('h2', { id: 'problems' }, 'What is wrong'),
    make('ul', { class: 'list' }, rows.map((one) => make('li', { 'data-key': `${one.subject} ${one.name} ${one.message}` },
      severity(one.severity), one.subject === 'controller' ? 'V-IPU controller ' : `${one.subject} `, about(one), `: ${one.message}`,
      one.since ? [', since ', age(one.since)] : null))));
}

function first({ first: rows, requests }) {
  if (rows.length === 0) return null;
  return make('section', { class: 'card', 'aria-labelledby': 'first' }, make('h2', { id: 'first' }, 'First in the queue'),
    make('ol', { class: 'list' }, rows.map((one) => make('li', { 'data-key': one.name },
      make('strong', {}, `${one.position}. `), make('a', { href: toOwner(one.owner) ?? toPartition(one.name) }, `${one.owner.namespace}/${one.owner.name}`),
      ` ${plural(one.ipus, 'IPU', 'IPUs')}, waits `, age(one.created),
      one.reason ? make('div', { class: 'dim' }, `${one.reason.controllers.join(', ')}: ${one.reason.reason}`) : null))),
    requests > rows.length ? make('p', {}, make('a', { href: link('queue') }, `All ${requests} requests`)) : null);
}

export function drawOverview([read, controllers]) {
  const { ipus, waiting: queue, known } = read;
  const isKnown = known.controllers && known.partitions;
  const rest = controllers.total - controllers.rows.length;
  return {
    title: 'Overview',
    summary: isKnown ? `${share(ipus.used, ipus.total)} of ${ipus.total} IPUs in use${inNamespace()}; `
      + `${plural(queue.requests, 'request waits', 'requests wait')}; ${plural(read.attention.total, 'problem', 'problems')}`
      : 'Not all of the cluster is known.',
    commands: ['kubectl ipu top controllers', 'kubectl ipu goodput --since 24h', 'kubectl get ipupartitions --sort-by=.metadata.creationTimestamp'],
    parts: [lacks(read.notShown), make('div', { class: 'cards' }, inUse(read), waiting(read), goodput(read), attention(read)),
      make('div', { class: 'columns' }, problems(read.attention), first(queue)),
      make('h2', { class: 'part' }, 'V-IPU controllers'),
      make('div', { class: `maps ${controllers.rows.length > 4 ? 'some' : 'few'}` }, controllers.rows.map((one) => tile(one))),
      rest > 0 ? make('p', {}, make('a', { href: link('controllers', { sort: 'problems' }) }, `${plural(rest, 'more V-IPU controller', 'more V-IPU controllers')}`)) : null],
  };
}
