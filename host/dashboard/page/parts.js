// Parts that several views have.

import { age, make, table } from './elements.js';
import { link, place } from './place.js';

// The links to the next and the previous page of rows.
export function pages(read) {
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

// Reasons, attempts or conditions, as a table.
export function lines(caption, first, rows) {
  if (rows.length === 0) return null;
  const columns = [[first, false], ['State', false], ['Since', true], ['Message', false]];
  return table(caption, columns, rows.map((one) => [one.about, one.state ?? '', age(one.since), one.message]));
}
