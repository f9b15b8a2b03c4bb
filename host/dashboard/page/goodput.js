// Where the IPU-hours of the last day went.

import { draw, hours, lacks, make, share, table } from './elements.js';
import { pages } from './parts.js';
import { namespace } from './place.js';
import { ALLOCATED, UNALLOCATED } from './states.js';

function row(name, one, total) {
  return [name, share(one.running, total), hours(total), ...ALLOCATED.map(([key]) => hours(one[key]))];
}

export function drawGoodput([read, past]) {
  const sum = (seconds, states) => states.reduce((all, [key]) => all + seconds[key], 0);
  const allocated = sum(read.allocated, ALLOCATED);
  const columns = [['Namespace', false], ['Goodput', true], ['IPU-hours', true], ...ALLOCATED.map(([, , , name]) => [name, true])];
  const rows = read.rows.map((one) => row(make('span', { tabindex: -1, 'data-row': one.namespace }, one.namespace || 'other namespaces'), one, one.totalSeconds));
  if (!namespace()) rows.push(row('all namespaces', read.allocated, allocated));
  const free = UNALLOCATED.map(([key, letter, of, name]) => [
    [make('span', { class: `chip s-${of}`, 'aria-hidden': 'true' }, letter), ` ${name}`], hours(read.unallocated[key]), share(read.unallocated[key], read.totalSeconds)]);
  return {
    title: 'Goodput of the last day',
    summary: `${hours(allocated)} of ${hours(read.totalSeconds)} IPU-hours in partitions, ${hours(read.allocated.running)} running`,
    commands: ['kubectl ipu goodput --since 24h --by namespace'],
    parts: [lacks(read.notShown),
      make('p', {}, 'Goodput is the share of IPU-hours in partitions during which a Pod of the owner was ready. It says nothing about what the IPUs compute.'),
      make('h3', {}, 'The last 24 hours'), strip(past.hours),
      table('IPU-hours in partitions, those with the most first', columns, rows), pages(read),
      namespace() ? null : table('IPU-hours in no partition of the operator', [['State', false], ['IPU-hours', true], ['Share of all', true]], free)],
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
      const [, , letter, of, name] = one;
      const size = value(hour, one) / most * height;
      if (size <= 0) return null;
      y -= size;
      const bar = draw('rect', { class: `s-${of}`, x: index * width, y, width, height: size },
        draw('title', {}, `${new Date(hour.start).toLocaleTimeString()}: ${name} ${hours(value(hour, one))} IPU-hours`));
      const label = size < 14 ? null : draw('text', { class: `s-${of}`, x: (index + 0.5) * width, y: y + size / 2 + 4 }, letter);
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
  return [picture, make('details', { 'data-open': 'hours' }, make('summary', {}, 'The figures, and what the letters mean'), table('IPU-hours by hour', columns, rows))];
}
