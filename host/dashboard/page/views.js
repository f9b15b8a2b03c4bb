// The views: from what the server answers to elements, and a sentence that says how much there is.

import { text } from './api.js';
import {
  ALLOCATED, ON_MAP, STATES, UNALLOCATED, age, draw, facts, hours, kubectl, lacks, make, named, plural, share, state, table,
} from './elements.js';
import { link, namespace, place } from './place.js';

// Most letters of one block: beyond, one letter is several IPUs.
const LETTERS_MAX = 1024;

// The views by name: the title, the changes that they are about, and how they are drawn.
export const VIEWS = {
  controllers: { title: 'V-IPU controllers', of: ['controllers'], draw: drawControllers },
  queue: { title: 'Queue', of: ['queue'], draw: drawQueue },
  partitions: { title: 'Partitions', of: ['partitions'], draw: drawPartitions },
  goodput: { title: 'Goodput of the last day', of: ['goodput', 'history'], draw: drawGoodput },
  policies: { title: 'Policies', of: ['policies'], draw: drawPolicies },
  partition: { title: 'Partition', of: ['partitions'], draw: drawDetail },
};

function toPartition(name, words = name) {
  return make('a', { href: `#partition/${encodeURIComponent(name)}`, 'data-row': name }, words);
}

function inNamespace() {
  return namespace() ? ` in namespace ${namespace()}` : '';
}

function legend() {
  return make('section', { class: 'legend', 'aria-labelledby': 'legend' },
    make('h3', { id: 'legend' }, 'Legend'),
    make('ul', {}, ON_MAP.map((name) => make('li', {}, state(name), ` ${STATES[name][2]}`))),
    make('p', {}, 'One letter is one IPU, at its place. Where a V-IPU controller does not report the places, partitions come in '
      + 'the order of their names, then the other IPUs.'));
}

function block(one, total) {
  const [letter, kind, words] = STATES[one.state] ?? STATES.unknown;
  const scale = Math.max(1, Math.ceil(total / LETTERS_MAX));
  const letters = letter.repeat(Math.max(1, Math.round(one.ipus / scale)));
  const owner = one.partition ? `, ${one.namespace}/${one.owner}` : '';
  const last = one.first + one.ipus - 1;
  const at = one.first === undefined ? '' : one.ipus === 1 ? ` (${last})` : ` (${one.first} to ${last})`;
  const label = `${plural(one.ipus, 'IPU', 'IPUs')}${at} ${words.split(':')[0]}${owner}`;
  // The style sheet draws the letters: they are a picture, and the label is the text.
  const attributes = { class: `block s-${kind}`, 'data-letters': letters, 'aria-label': label, title: label };
  if (!one.partition) return make('span', { ...attributes, role: 'img' });
  return make('a', { ...attributes, href: `#partition/${encodeURIComponent(one.partition)}` });
}

function controller(one) {
  const total = one.blocks.reduce((sum, block) => sum + block.ipus, 0);
  const used = one.blocks.filter((block) => !['free', 'stranded', 'unknown'].includes(block.state));
  const counted = used.reduce((sum, block) => sum + block.ipus, 0);
  const parts = [
    one.summary,
    one.total === undefined ? `${counted} IPUs in partitions` : `${counted} of ${one.total} IPUs in partitions`,
    one.largestFree === undefined ? null : `largest free ${one.largestFree}`,
    one.total === undefined || one.isInPlace ? null : one.reportsPlaces ? 'not at their places: some are not known yet' : 'places not reported',
    one.reservedFor ? `reserved for ${one.reservedFor}` : null,
    one.nodes > 0 ? plural(one.nodes, 'node', 'nodes') : null,
    one.version ? `version ${one.version}` : null,
    one.failedPartitions + one.autoResets > 0
      ? `last day: ${plural(one.failedPartitions, 'failed partition', 'failed partitions')}, ${plural(one.autoResets, 'automatic reset', 'automatic resets')}` : null,
    one.reason ? `because: ${one.reason}${one.requestedBy ? ` (${one.requestedBy})` : ''}` : null,
  ];
  return make('section', { class: 'controller', 'aria-label': one.address },
    make('h3', {}, make('a', { href: link('partitions', { controller: one.address }), 'data-row': one.address }, one.address)),
    make('p', {}, parts.filter((part) => part).join(' · '), one.since ? [' · since ', age(one.since)] : null),
    make('div', { class: 'cells' }, one.blocks.map((block_) => [block(block_, total), ' '])));
}

function drawControllers(read) {
  return {
    summary: `${plural(read.total, 'V-IPU controller', 'V-IPU controllers')}${inNamespace()}`,
    parts: [kubectl('kubectl get vipucontrollers'), lacks(read.notShown), legend(), read.rows.map(controller), pages(read)],
  };
}

function reasons(one) {
  const lines = one.reasons.map((reason) => {
    const more = reason.count - reason.controllers.length;
    return `${reason.controllers.join(', ')}${more > 0 ? ` and ${more} more` : ''}: ${reason.reason}`;
  });
  if (one.moreReasons > 0) lines.push(`${one.moreReasons} more V-IPU controllers have other reasons`);
  if (one.message) lines.push(one.message);
  return make('ul', {}, lines.map((line) => make('li', {}, line)));
}

function owner(one) {
  return `${one.kind} ${one.namespace}/${one.name}`;
}

function blocked(read) {
  if (read.total === 0) return null;
  const rows = read.rows.map((one) => [`${one.namespace}/${one.name}`, one.reason, age(one.since), one.message]);
  const more = read.total - read.rows.length;
  const columns = [['IPUJob', false], ['Reason', false], ['Since', true], ['Message', false]];
  return [table('IPUJobs that wait for something other than IPUs', columns, rows),
    more > 0 ? make('p', {}, `${plural(more, 'more job waits', 'more jobs wait')} for something other than IPUs.`) : null];
}

function drawQueue(read) {
  const fit = read.largestFit && (read.largestFit.controller
    ? `The largest partition that a new request would get now has ${plural(read.largestFit.ipus, 'IPU', 'IPUs')}, on ${read.largestFit.controller} (an estimate; what is reserved for the requests below does not count).`
    : 'No V-IPU controller is open to new partitions.');
  const rows = read.rows.map((one) => [
    toPartition(one.name, `${one.position}`), owner(one.owner), `${one.ipus}`, one.gangSize ? `${one.gangSize}` : '', age(one.created),
    one.largestFit === undefined ? '' : `${one.largestFit}`, reasons(one),
  ]);
  const columns = [['Position', false], ['Owner', false], ['IPUs', true], ['Gang', true], ['Waits', true], ['Largest fit', true], ['Reason', false]];
  return {
    summary: `${plural(read.waiting, 'request waits', 'requests wait')} for ${plural(read.waitingIpus, 'IPU', 'IPUs')}${namespace() ? `; ${read.total}${inNamespace()}` : ''}`,
    parts: [kubectl('kubectl get ipupartitions --sort-by=.metadata.creationTimestamp', 'kubectl ipu why JOB'),
      lacks(read.notShown), fit ? make('p', {}, fit) : null,
      table('Requests in the order in which they are served; a later, smaller one can be served first', columns, rows), pages(read),
      blocked(read.blocked)],
  };
}

function drawPartitions(read, { parameters }) {
  const on = parameters.get('controller');
  const rows = read.rows.map((one) => [
    toPartition(one.name), owner(one.owner), `${one.ipus}`, named(one.state), age(one.since), one.controller ?? '',
    make('span', { class: 'id' }, one.partitionId ?? ''), one.message ?? '',
  ]);
  const columns = [['Name', false], ['Owner', false], ['IPUs', true], ['State', false], ['Since', true], ['V-IPU controller', false], ['Id', false], ['Message', false]];
  return {
    summary: `${plural(read.total, 'partition', 'partitions')}${on ? ` on ${on}` : ''}${inNamespace()}`,
    parts: [kubectl('kubectl get ipupartitions --output wide', `kubectl ipu top jobs${namespace() ? ` --namespace ${namespace()}` : ''}`),
      on ? make('p', {}, make('a', { href: link('partitions') }, 'Partitions on all V-IPU controllers')) : null,
      lacks(read.notShown), table('Partitions by name', columns, rows), pages(read)],
  };
}

function lines(caption, first, rows) {
  if (rows.length === 0) return null;
  const columns = [[first, false], ['State', false], ['Since', true], ['Message', false]];
  return table(caption, columns, rows.map((one) => [one.about, one.state ?? '', age(one.since), one.message]));
}

function drawDetail(read) {
  const { owner: whose } = read;
  const pods = whose.pods.rows.map((pod) => [
    pod.name, pod.phase, pod.node ?? '', pod.usesPartition ? 'yes' : 'no',
    pod.cause ? `${pod.cause.reason}${pod.cause.message ? `: ${pod.cause.message}` : ''}` : '',
  ]);
  const target = whose.kind === 'Pod' ? `pod/${whose.name}` : whose.name;
  const commands = [`kubectl get ipupartition ${read.name} --output yaml`, `kubectl ipu why ${target} --namespace ${whose.namespace}`];
  if (whose.kind === 'IPUJob') commands.push(`kubectl get pods --namespace ${whose.namespace} --selector graphcore.ai/job-uid=${whose.uid}`);
  const podColumns = [['Pod', false], ['Phase', false], ['Node', false], ['Uses this partition', false], ['Cause', false]];
  return {
    summary: `Partition ${read.name}`,
    parts: [kubectl(...commands), lacks(read.notShown),
      facts([['Name', read.name], ['State', named(read.state)], ['Phase', read.phase], ['IPUs', `${read.ipus}`], ['GCDs', `${read.gcds}`],
        ['Slot', `${read.slot}`], ['Created', read.created ? [age(read.created), ' ago'] : null], ['V-IPU controller', read.controller],
        ['Id', read.partitionId], ['Chosen by', read.decidedBy], ['Message', read.message]]),
      lines('Why it waits', 'V-IPU controller', read.waiting), lines('Conditions', 'Condition', read.conditions),
      lines('Attempts, the last one first', 'V-IPU controller', read.attempts),
      make('h3', {}, `Owner: ${owner(whose)}`),
      whose.job ? facts([['State', whose.job.state], ['Message', whose.job.message]]) : null,
      whose.job ? lines('Conditions of the IPUJob', 'Condition', whose.job.conditions) : null,
      pods.length > 0 ? table(`Pods of the owner${whose.pods.hasMore ? ' (the first 200)' : ''}`, podColumns, pods) : make('p', {}, 'No Pods.')],
  };
}

function goodputRow(name, one, total) {
  return [name, share(one.running, total), hours(total), ...ALLOCATED.map(([key]) => hours(one[key]))];
}

async function drawGoodput(read, _, signal) {
  const query = namespace() ? `?namespace=${encodeURIComponent(namespace())}` : '';
  const past = JSON.parse(await text(`api/history${query}`, signal));
  const sum = (seconds, states) => states.reduce((all, [key]) => all + seconds[key], 0);
  const allocated = sum(read.allocated, ALLOCATED);
  const columns = [['Namespace', false], ['Goodput', true], ['IPU-hours', true], ...ALLOCATED.map(([, , , name]) => [name, true])];
  const rows = read.rows.map((one) => goodputRow(make('span', { tabindex: -1, 'data-row': one.namespace }, one.namespace || 'other namespaces'), one, one.totalSeconds));
  if (!namespace()) rows.push(goodputRow('all namespaces', read.allocated, allocated));
  const free = UNALLOCATED.map(([key, letter, kind, name]) => [
    [make('span', { class: `block s-${kind}`, 'aria-hidden': 'true' }, letter), ` ${name}`], hours(read.unallocated[key]), share(read.unallocated[key], read.totalSeconds)]);
  return {
    summary: `${hours(allocated)} of ${hours(read.totalSeconds)} IPU-hours in partitions, ${hours(read.allocated.running)} running`,
    parts: [kubectl('kubectl ipu goodput --since 24h --by namespace'), lacks(read.notShown),
      make('p', {}, 'Goodput is the share of IPU-hours in partitions during which a Pod of the owner was ready. It says nothing about what the IPUs compute.'),
      table('IPU-hours in partitions, those with the most first', columns, rows), pages(read),
      namespace() ? null : table('IPU-hours in no partition of the operator', [['State', false], ['IPU-hours', true], ['Share of all', true]], free),
      make('h3', {}, 'The last 24 hours'), strip(past.hours)],
  };
}

// A bar for each hour, and the same as a table.
function strip(all) {
  if (all.length === 0) return make('p', {}, 'No hour is counted yet.');
  const states = [...ALLOCATED.map((one) => ['allocated', ...one]), ...UNALLOCATED.map((one) => ['unallocated', ...one])];
  const value = (hour, [group, key]) => (hour[group] ? hour[group][key] : 0);
  const most = Math.max(1, ...all.map((hour) => states.reduce((sum, one) => sum + value(hour, one), 0)));
  const [width, height] = [30, 160];
  const bars = all.map((hour, index) => {
    let y = height;
    const parts = states.map((one) => {
      const [, , letter, kind, name] = one;
      const size = value(hour, one) / most * height;
      if (size <= 0) return null;
      y -= size;
      const bar = draw('rect', { class: `s-${kind}`, x: index * width, y, width, height: size },
        draw('title', {}, `${new Date(hour.start).toLocaleTimeString()}: ${name} ${hours(value(hour, one))} IPU-hours`));
      const label = size < 14 ? null : draw('text', { class: `t-${kind}`, x: (index + 0.5) * width, y: y + size / 2 + 4 }, letter);
      return [bar, label];
    });
    const clock = draw('text', { class: 'axis', x: (index + 0.5) * width, y: height + 14 }, String(new Date(hour.start).getHours()).padStart(2, '0'));
    return draw('g', {}, parts, clock);
  });
  const label = 'IPU-hours by hour of the day and state. The table below has the figures.';
  const picture = draw('svg', { class: 'strip', viewBox: `0 0 ${Math.max(24, all.length) * width} ${height + 20}`, role: 'img', 'aria-label': label }, bars);
  const used = states.filter((one) => all.some((hour) => value(hour, one) > 0));
  const rows = all.map((hour) => [
    make('time', { datetime: hour.start }, new Date(hour.start).toLocaleString()), ...used.map((one) => hours(value(hour, one)))]);
  const columns = [['Hour', false], ...used.map(([, , letter, , name]) => [`${letter} ${name}`, true])];
  return [picture, make('details', {}, make('summary', {}, 'The figures, and what the letters mean'), table('IPU-hours by hour', columns, rows))];
}

function drawPolicies(read) {
  const digest = (words) => make('span', { class: 'id', title: words ?? '' }, words ? words.slice(0, 19) : '');
  const rows = read.rows.map((one) => [
    make('span', { tabindex: -1, 'data-row': one.name }, one.name), one.hook, one.mode, `${one.order}`, one.phase, digest(one.activeDigest),
    one.desiredDigest === one.activeDigest ? '' : digest(one.desiredDigest), `${one.answered}`, `${one.failed}`,
    one.shadow ? `${one.shadow.equal} equal, ${one.shadow.different} different, ${one.shadow.failed} failed, ${one.shadow.skipped} skipped` : '',
    `${one.replicas - one.replicasWithProblem} of ${one.replicas}`, one.message,
  ]);
  const columns = [['Name', false], ['Hook', false], ['Mode', false], ['Order', true], ['Phase', false], ['Active digest', false],
    ['Desired digest', false], ['Answered', true], ['Failed', true], ['Shadow', false], ['Replicas without problem', false], ['Message', false]];
  return {
    summary: plural(read.total, 'policy', 'policies'),
    parts: [kubectl('kubectl get ipupolicies --output wide'), lacks(read.notShown),
      make('p', {}, 'Without a policy, the built-in guest of a hook decides.'), table('Policies by hook and order', columns, rows), pages(read)],
  };
}

function pages(read) {
  if (read.total <= read.limit && read.offset === 0) return null;
  const { view, parameters } = place();
  const from = (offset) => link(view, { ...Object.fromEntries(parameters), offset: offset > 0 ? String(offset) : '' });
  const last = Math.max(0, Math.floor((read.total - 1) / read.limit) * read.limit);
  const shown = read.rows.length > 0 ? `${read.offset + 1} to ${read.offset + read.rows.length} of ${read.total}` : `none of ${read.total} here`;
  return make('nav', { class: 'pages', 'aria-label': 'Pages' },
    read.offset > 0 ? make('a', { href: from(Math.min(last, Math.max(0, read.offset - read.limit))), rel: 'prev' }, 'Previous') : null,
    make('span', {}, shown),
    read.offset + read.limit < read.total ? make('a', { href: from(read.offset + read.limit), rel: 'next' }, 'Next') : null);
}
