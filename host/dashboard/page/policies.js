// The policies with the counts of their calls.

import { lacks, make, plural, table } from './elements.js';
import { pages } from './parts.js';

export function drawPolicies([read]) {
  const digest = (words) => make('span', { class: 'id', title: words ?? '' }, words ? words.slice(0, 19) : '');
  const rows = read.rows.map((one) => [
    make('span', { tabindex: -1, 'data-row': one.name }, one.name), one.hook, one.mode, `${one.order}`, one.phase, digest(one.activeDigest),
    one.desiredDigest === one.activeDigest ? '' : digest(one.desiredDigest), `${one.answered}`, `${one.failed}`,
    one.shadow ? `${one.shadow.equal} equal, ${one.shadow.different} different, ${one.shadow.failed} failed, ${one.shadow.skipped} skipped` : '',
    `${one.replicas - one.replicasWithProblem} of ${one.replicas}`, one.message,
  ]);
  const columns = [['Name', false], ['Hook', false], ['Mode', false], ['Order', true], ['Phase', false], ['Active digest', 'wide'],
    ['Desired digest', 'wide'], ['Answered', true], ['Failed', true], ['Shadow', false], ['Replicas without problem', 'wide'], ['Message', false]];
  return {
    title: 'Policies',
    summary: plural(read.total, 'policy', 'policies'),
    commands: ['kubectl get ipupolicies --output wide'],
    parts: [lacks(read.notShown), make('p', {}, 'Without a policy, the built-in guest of a hook decides.'),
      table('Policies by hook and order', columns, rows), pages(read)],
  };
}
