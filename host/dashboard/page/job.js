// One IPUJob: the next thing to do, and its stages, partitions, Pods and events on one axis of time.

import { age, chip, clock, draw, duration, lacks, make, plural, severity, table } from './elements.js';
import { toPartition } from './place.js';
import { kind } from './states.js';
import { axis, lane, marks, timeline } from './timeline.js';

// The state of IPUs whose colour and pattern a stage has.
const STAGES = {
  waiting: 'waiting', forming: 'forming', starting: 'ready', running: 'running', wasted: 'error', resetting: 'resetting',
  idle: 'stranded', restarting: 'releasing', suspended: 'unknown',
};

function swatch(stage) {
  return draw('svg', { class: 'swatch', viewBox: '0 0 10 10', 'aria-hidden': 'true' },
    draw('rect', { width: 10, height: 10, fill: `url(#p-${kind(STAGES[stage])})` }));
}

// Seconds of each stage, with those since the last count if the order of the stages is known.
function totals({ stages }, end) {
  if (stages.spans.length === 0) return stages.totals;
  return stages.spans.map((one) => {
    const until = one.until ? Date.parse(one.until) : end;
    return { stage: one.activity, seconds: Math.max(0, Math.round((until - Date.parse(one.from)) / 1000)) };
  });
}

function durations(read, end) {
  if (!read.stages) return make('p', { class: 'dim' }, 'The operator has not counted the stages of this job yet.');
  const all = totals(read, end);
  const isOrdered = read.stages.spans.length > 0;
  return [make('ul', { class: 'legend stages' }, all.map((one) => make('li', {}, swatch(one.stage), `${one.stage} ${duration(one.seconds)}`))),
    isOrdered ? null : make('p', { class: 'dim' }, 'The job has been reset, suspended or restarted: the operator counts the seconds of each stage, and does not keep their order.')];
}

function named(one, href) {
  const place = [one.ipus ? plural(one.ipus, 'IPU', 'IPUs') : null, one.place].filter((part) => part).join(' on ');
  return [href ? make('a', { href, 'data-row': one.name }, one.name) : one.name, place ? make('span', { class: 'dim' }, ` ${place}`) : null];
}

function spans(one) {
  return one.spans.map((span) => ({ ...span, words: span.state }));
}

// A Pod forms no partition: it starts.
function starts(one) {
  return spans(one).map((span) => (span.state === 'forming' ? { ...span, state: STAGES.starting, words: 'starting' } : span));
}

function lanes(read, on) {
  const stages = read.stages?.spans.map((one) => ({ ...one, state: STAGES[one.activity], words: one.activity })) ?? [];
  return [
    stages.length > 0 ? [make('strong', {}, 'Stages'), lane(on, 'Stages', stages)] : null,
    ...read.partitions.map((one) => [named(one, toPartition(one.name)), lane(on, `Partition ${one.name}`, spans(one))]),
    ...read.pods.map((one) => [named(one), lane(on, `Pod ${one.name}`, starts(one))]),
    read.events.length > 0 ? ['Events', marks(on, read.events)] : null,
  ].filter((row) => row);
}

function next(read) {
  return make('section', { class: 'card next', 'aria-labelledby': 'next' }, make('h2', { id: 'next' }, 'What to do next'),
    make('ul', {}, read.advice.map((line) => make('li', { class: 'lead' }, line))),
    read.message ? make('p', { class: 'dim' }, `${read.state}: ${read.message}`) : null);
}

function pods(read) {
  if (read.pods.length === 0) return make('p', {}, 'No Pods.');
  const rows = read.pods.map((one) => [one.name, one.state, one.place ?? '', one.cause ? `${one.cause.reason}${one.cause.message ? `: ${one.cause.message}` : ''}` : '']);
  return table('Pods', [['Pod', false], ['Phase', false], ['Node', 'wide'], ['Cause', false]], rows);
}

function events(read) {
  if (read.events.length === 0) return null;
  const rows = read.events.map((one) => [make('span', { class: 'nowrap' }, clock(one.time)), one.type === 'Warning' ? severity('warning') : '', one.object, one.reason,
    one.count > 1 ? `${one.message} (${one.count} times)` : one.message]);
  return table('Events, the last one first', [['Time', false], ['Type', false], ['Object', 'wide'], ['Reason', false], ['Message', false]], rows);
}

export function drawJob([read]) {
  const name = `${read.namespace}/${read.name}`;
  const end = read.ended ? Date.parse(read.ended) : Date.now();
  const on = read.created ? axis(Date.parse(read.created), end) : null;
  const partitions = read.partitions.map((one) => [make('a', { href: toPartition(one.name) }, one.name), `${one.ipus}`, chip(one.state), one.place ?? '']);
  return {
    title: `IPUJob ${name}`,
    summary: `IPUJob ${name} is ${read.state}${read.restarts > 0 ? ` after ${plural(read.restarts, 'restart', 'restarts')}` : ''}`,
    commands: [`kubectl ipu why ${read.name} --namespace ${read.namespace}`, `kubectl describe ipujob ${read.name} --namespace ${read.namespace}`,
      `kubectl get pods --namespace ${read.namespace} --selector graphcore.ai/job-uid=${read.uid}`],
    parts: [lacks(read.notShown), next(read),
      make('section', { class: 'card', 'aria-labelledby': 'time' }, make('h2', { id: 'time' }, read.state, read.created ? [make('span', { class: 'dim' }, ', created '), age(read.created), make('span', { class: 'dim' }, ' ago')] : null),
        durations(read, end), on ? timeline(on, lanes(read, on)) : null),
      partitions.length > 0 ? table('Partitions', [['Name', false], ['IPUs', true], ['State', false], ['V-IPU controller', false]], partitions) : null,
      pods(read), events(read)],
  };
}
