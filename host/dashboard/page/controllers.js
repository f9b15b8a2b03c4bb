// The V-IPU controllers as maps: a few large ones, or all of them as small multiples.

import { age, lacks, make, plural, severity } from './elements.js';
import { legend, map } from './map.js';
import { inNamespace, link, place } from './place.js';
import { pages } from './parts.js';
import { UNUSED } from './states.js';

// Most V-IPU controllers whose facts are shown beside their maps, and most that are shown in a middle size.
const FEW = 6;
const SOME = 40;

// Most problems of a tile.
const PROBLEMS = 3;

function used(one) {
  return one.blocks.filter((block) => !UNUSED.includes(block.state)).reduce((sum, block) => sum + block.ipus, 0);
}

function facts(one) {
  const parts = [
    one.summary,
    one.largestFree === undefined ? null : `largest free ${one.largestFree}`,
    one.reservedFor ? `reserved for ${one.reservedFor}` : null,
    one.nodes > 0 ? plural(one.nodes, 'node', 'nodes') : null,
    one.version ? `version ${one.version}` : null,
  ];
  return make('p', { class: 'more dim' }, parts.filter((part) => part).join(' · '), one.since ? [' · since ', age(one.since)] : null);
}

// Why blocks are beside the grid.
function loose(one) {
  if (one.total === undefined || one.isInPlace) return null;
  return make('p', { class: 'dim' }, one.reportsPlaces ? 'some places are not known yet' : 'places not reported');
}

function problems(one) {
  if (one.problems.length === 0) return null;
  const shown = one.problems.slice(0, PROBLEMS);
  const line = (problem) => [severity(problem.severity), problem.name === one.address ? null : `${problem.name}: `, problem.message];
  const more = one.problems.length - shown.length;
  return make('ul', { class: 'list' }, shown.map((problem) => make('li', {}, line(problem))),
    more > 0 ? make('li', {}, plural(more, 'more problem', 'more problems')) : null);
}

// A V-IPU controller with its map and what is wrong with it. `isSmall`: with its map alone, and the rest when the pointer or
// the focus is on its name.
export function tile(one, isSmall) {
  const filled = one.total === undefined ? `${used(one)} IPUs` : `${used(one)} of ${one.total} IPUs`;
  const worst = one.problems[0];
  const [host] = one.address.split(/:(?=\d+$)/);
  const tip = [one.address, `${filled} in use, ${one.summary}`, ...one.problems.map((problem) => `${problem.name}: ${problem.message}`)];
  const name = make('a', { href: link('partitions', { controller: one.address }), 'data-row': one.address, 'data-tip': tip.join('\n'), 'aria-label': one.address },
    isSmall ? host : one.address);
  return make('section', { class: `tile ${worst ? `is-${worst.severity}` : ''}`, 'aria-label': one.address, 'data-key': one.address },
    make('h3', {}, name), isSmall ? null : [make('p', {}, make('strong', {}, filled), ' in use'), facts(one), problems(one), loose(one)], map(one));
}

function order() {
  const now = place().parameters.get('sort') === 'problems' ? 'problems' : 'address';
  const to = (sort, words) => (sort === now ? make('strong', {}, words) : make('a', { href: link('controllers', { sort: sort === 'address' ? '' : sort }) }, words));
  return make('div', { class: 'tools' }, 'Sorted by ', to('address', 'address'), to('problems', 'what is wrong'));
}

export function drawControllers([read]) {
  const count = read.rows.length;
  const size = count <= FEW ? 'few' : count <= SOME ? 'some' : 'many';
  const wrong = read.rows.filter((one) => one.problems.some((problem) => problem.severity !== 'notice')).length;
  return {
    title: 'V-IPU controllers',
    summary: `${plural(read.total, 'V-IPU controller', 'V-IPU controllers')}${inNamespace()}${wrong > 0 ? `, ${wrong} of them with problems` : ''}`,
    commands: ['kubectl get vipucontrollers', 'kubectl ipu top controllers'],
    parts: [lacks(read.notShown), order(), make('div', { class: `maps ${size}` }, read.rows.map((one) => tile(one, size === 'many'))), pages(read), legend()],
  };
}
