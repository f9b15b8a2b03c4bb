// Require label: an IPUJob carries the labels that the admin asks for.

/** Keys of the labels, from the settings: {"requireLabels": ["team"]}. */
let required = [];

export const validator = {
  configure(text) {
    const { requireLabels = ["team"] } = JSON.parse(text);
    if (!Array.isArray(requireLabels) || requireLabels.some((key) => typeof key !== "string")) {
      throw `requireLabels is ${JSON.stringify(requireLabels)}; write a list of keys such as ["team"]`;
    }
    required = requireLabels;
  },

  validate(request) {
    const labels = JSON.parse(request.object).metadata?.labels ?? {};
    const missing = required.filter((key) => !labels[key]);
    return {
      violations: missing.map((key) => ({
        field: `metadata.labels[${key}]`,
        message: `missing; every IPUJob says by this label whose it is, so add \`${key}: …\``,
      })),
      warnings: [],
    };
  },
};
