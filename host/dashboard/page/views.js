// The views: their names in the navigation, the changes that they are about, and how they are drawn.

import { drawControllers } from './controllers.js';
import { drawGoodput } from './goodput.js';
import { drawJob } from './job.js';
import { drawOverview } from './overview.js';
import { drawPartition, drawPartitions } from './partitions.js';
import { drawPolicies } from './policies.js';
import { drawQueue } from './queue.js';

// `draw` gets what the server answers and the place, and returns the title, a summary in a sentence, the commands of kubectl
// that show the same, and the parts of the page.
export const VIEWS = {
  overview: { title: 'Overview', of: ['overview'], draw: drawOverview },
  controllers: { title: 'V-IPU controllers', of: ['controllers'], draw: drawControllers },
  queue: { title: 'Queue', of: ['queue'], draw: drawQueue },
  partitions: { title: 'Partitions', of: ['partitions'], draw: drawPartitions },
  goodput: { title: 'Goodput', of: ['goodput', 'history'], draw: drawGoodput },
  policies: { title: 'Policies', of: ['policies'], draw: drawPolicies },
  job: { title: 'IPUJob', of: ['partitions'], draw: drawJob },
  partition: { title: 'Partition', of: ['partitions'], draw: drawPartition },
};
