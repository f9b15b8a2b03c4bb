// The partitions, and one of them with its owner and the owner's Pods.

import { age, chip, facts, lacks, make, plural, table } from './elements.js';
import { lines, pages } from './parts.js';
import { inNamespace, link, namespace, toOwner, toPartition } from './place.js';

function owner(one) {
  return `${one.kind} ${one.namespace}/${one.name}`;
}

function toIt(one) {
  const href = toOwner(one);
  return href ? make('a', { href }, owner(one)) : owner(one);
}

export function drawPartitions([read], { parameters }) {
  const on = parameters.get('controller');
  const rows = read.rows.map((one) => [
    make('a', { href: toPartition(one.name), 'data-row': one.name }, one.name), toIt(one.owner), `${one.ipus}`, chip(one.state), age(one.since),
    one.controller ?? '', make('span', { class: 'id' }, one.partitionId ?? ''), one.message ?? '',
  ]);
  const columns = [['Name', false], ['Owner', false], ['IPUs', true], ['State', false], ['Since', true], ['V-IPU controller', 'wide'], ['Id', 'wide'], ['Message', 'wide']];
  return {
    title: on ? `Partitions on ${on}` : 'Partitions',
    summary: `${plural(read.total, 'partition', 'partitions')}${on ? ` on ${on}` : ''}${inNamespace()}`,
    commands: ['kubectl get ipupartitions --output wide', `kubectl ipu top jobs${namespace() ? ` --namespace ${namespace()}` : ''}`],
    parts: [on ? make('p', {}, make('a', { href: link('partitions') }, 'Partitions on all V-IPU controllers')) : null,
      lacks(read.notShown), table('Partitions by name', columns, rows), pages(read)],
  };
}

export function drawPartition([read]) {
  const { owner: whose } = read;
  const pods = whose.pods.rows.map((pod) => [
    pod.name, pod.phase, pod.node ?? '', pod.usesPartition ? 'yes' : 'no',
    pod.cause ? `${pod.cause.reason}${pod.cause.message ? `: ${pod.cause.message}` : ''}` : '',
  ]);
  const target = whose.kind === 'Pod' ? `pod/${whose.name}` : whose.name;
  const commands = [`kubectl get ipupartition ${read.name} --output yaml`, `kubectl ipu why ${target} --namespace ${whose.namespace}`];
  if (whose.kind === 'IPUJob') commands.push(`kubectl get pods --namespace ${whose.namespace} --selector graphcore.ai/job-uid=${whose.uid}`);
  const columns = [['Pod', false], ['Phase', false], ['Node', false], ['Uses this partition', false], ['Cause', false]];
  return {
    title: `Partition ${read.name}`,
    summary: `Partition ${read.name}`,
    commands,
    parts: [lacks(read.notShown),
      facts([['Name', read.name], ['State', chip(read.state)], ['Phase', read.phase], ['IPUs', `${read.ipus}`], ['GCDs', `${read.gcds}`],
        ['Slot', `${read.slot}`], ['Created', read.created ? [age(read.created), ' ago'] : null], ['V-IPU controller', read.controller],
        ['Id', read.partitionId], ['Chosen by', read.decidedBy], ['Message', read.message]]),
      lines('Why it waits', 'V-IPU controller', read.waiting), lines('Conditions', 'Condition', read.conditions),
      lines('Attempts, the last one first', 'V-IPU controller', read.attempts),
      make('h3', {}, 'Owner: ', toIt(whose)),
      whose.job ? facts([['State', whose.job.state], ['Message', whose.job.message]]) : null,
      whose.job ? lines('Conditions of the IPUJob', 'Condition', whose.job.conditions) : null,
      pods.length > 0 ? table(`Pods of the owner${whose.pods.hasMore ? ' (the first 200)' : ''}`, columns, pods) : make('p', {}, 'No Pods.')],
  };
}
