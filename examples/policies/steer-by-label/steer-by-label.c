// Steer by label: a namespace labelled `ipu-pool: new` gets partitions only on V-IPU controllers whose
// nodes carry the value `new`; others get the first controller with room.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement.h"

#define LABEL "ipu-pool"

typedef exports_ipu_policy_placer_request_t request_t;
typedef exports_ipu_policy_placer_controller_t controller_t;
typedef exports_ipu_policy_placer_passed_over_t passed_over_t;

static bool same(const placement_string_t *one, const placement_string_t *other) {
    return one->len == other->len && memcmp(one->ptr, other->ptr, one->len) == 0;
}

static bool is(const placement_string_t *text, const char *expected) {
    return text->len == strlen(expected) && memcmp(text->ptr, expected, text->len) == 0;
}

// The pool of the namespace; none where it has no such label, or its labels are not known.
static const placement_string_t *pool(const request_t *request) {
    if (!request->namespace_.labels.is_some) {
        return NULL;
    }
    const ipu_policy_facts_pairs_t *labels = &request->namespace_.labels.val;
    for (size_t i = 0; i < labels->len; i++) {
        if (is(&labels->ptr[i].f0, LABEL)) {
            return &labels->ptr[i].f1;
        }
    }
    return NULL;
}

// Whether the Pods ask for nodes that the controller does not have.
static bool contradicts(const request_t *request, const controller_t *controller) {
    for (size_t i = 0; i < request->node_selector.len; i++) {
        if (same(&request->node_selector.ptr[i].f0, &controller->label_key)
            && !same(&request->node_selector.ptr[i].f1, &controller->label_value)) {
            return true;
        }
    }
    return false;
}

// Why a controller is passed over, written into `reason`; false where it is not.
static bool passed_over(const request_t *request, const controller_t *controller,
                        const exports_ipu_policy_placer_list_attempt_t *attempts,
                        char *reason, size_t size) {
    for (size_t i = 0; i < attempts->len; i++) {
        if (same(&attempts->ptr[i].controller, &controller->name)) {
            snprintf(reason, size, "%.*s", (int)attempts->ptr[i].reason.len,
                     (const char *)attempts->ptr[i].reason.ptr);
            return true;
        }
    }
    const placement_string_t *wanted = pool(request);
    if (wanted != NULL && !same(wanted, &controller->label_value)) {
        snprintf(reason, size, "the namespace is labelled " LABEL "=%.*s, and this is another pool",
                 (int)wanted->len, (const char *)wanted->ptr);
    } else if (!controller->reachable) {
        snprintf(reason, size, "it does not answer");
    } else if (!controller->has_nodes || contradicts(request, controller)) {
        snprintf(reason, size, "no node that the Pods may run on reaches it");
    } else if (controller->largest_free < request->ipus) {
        snprintf(reason, size, "%u of its %u IPUs are used", (unsigned)controller->used_ipus,
                 (unsigned)controller->total_ipus);
    } else {
        return false;
    }
    return true;
}

bool exports_ipu_policy_placer_configure(placement_string_t *settings, placement_string_t *error) {
    (void)settings;
    (void)error;
    return true;
}

void exports_ipu_policy_placer_place(request_t *request,
                                     exports_ipu_policy_placer_list_controller_t *controllers,
                                     exports_ipu_policy_placer_list_attempt_t *attempts,
                                     exports_ipu_policy_placer_decision_t *decision) {
    decision->tag = EXPORTS_IPU_POLICY_PLACER_DECISION_WAIT;
    decision->val.wait.len = controllers->len;
    // One more, since none at all may be NULL; where there is no memory the host ends the call.
    decision->val.wait.ptr = calloc(controllers->len + 1, sizeof(passed_over_t));
    if (decision->val.wait.ptr == NULL) {
        abort();
    }
    for (size_t i = 0; i < controllers->len; i++) {
        const controller_t *controller = &controllers->ptr[i];
        char reason[512];
        if (!passed_over(request, controller, attempts, reason, sizeof(reason))) {
            decision->tag = EXPORTS_IPU_POLICY_PLACER_DECISION_TRY;
            placement_string_dup_n(&decision->val.try_, (const char *)controller->name.ptr,
                                   controller->name.len);
            return;
        }
        passed_over_t *passed = &decision->val.wait.ptr[i];
        placement_string_dup_n(&passed->controller, (const char *)controller->name.ptr,
                               controller->name.len);
        placement_string_dup(&passed->reason, reason);
    }
}
