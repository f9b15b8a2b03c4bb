// Steer by label: a namespace labelled `ipu-pool: new` gets partitions only on V-IPU controllers whose
// nodes carry the value `new`; others get the first one with enough free IPUs. While the labels are
// not known, partitions wait: a tenant must not get another one's controller after a restart.

#include <stdbool.h>
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

// The pool of the namespace; none where it has no such label.
static const placement_string_t *pool(const request_t *request) {
    const ipu_policy_types_pairs_t *labels = &request->namespace_.labels.val;
    for (size_t i = 0; i < labels->len; i++) {
        if (is(&labels->ptr[i].f0, LABEL)) {
            return &labels->ptr[i].f1;
        }
    }
    return NULL;
}

// Whether the Pods select nodes that the controller does not have.
static bool contradicts(const request_t *request, const controller_t *controller) {
    for (size_t i = 0; i < request->node_selector.len; i++) {
        if (same(&request->node_selector.ptr[i].f0, &controller->label_key)
            && !same(&request->node_selector.ptr[i].f1, &controller->label_value)) {
            return true;
        }
    }
    return false;
}

// A reason that is being written. There is no printf: it would import a file system.
typedef struct {
    char text[512];
    size_t length;
} reason_t;

static void add(reason_t *reason, const void *text, size_t length) {
    size_t free_bytes = sizeof(reason->text) - reason->length;
    size_t added = length < free_bytes ? length : free_bytes;
    memcpy(reason->text + reason->length, text, added);
    reason->length += added;
}

static void add_text(reason_t *reason, const char *text) {
    add(reason, text, strlen(text));
}

static void add_number(reason_t *reason, uint32_t number) {
    char digits[10];
    size_t first = sizeof(digits);
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    add(reason, digits + first, sizeof(digits) - first);
}

// Why a controller is passed over, written into `reason`; false where it is not.
static bool passed_over(const request_t *request, const controller_t *controller,
                        const exports_ipu_policy_placer_list_attempt_t *attempts,
                        reason_t *reason) {
    for (size_t i = 0; i < attempts->len; i++) {
        if (same(&attempts->ptr[i].controller, &controller->name)) {
            add(reason, attempts->ptr[i].reason.ptr, attempts->ptr[i].reason.len);
            return true;
        }
    }
    if (!request->namespace_.labels.is_some) {
        add_text(reason, "the labels of the namespace are not known yet");
        return true;
    }
    const placement_string_t *wanted = pool(request);
    if (wanted != NULL && !same(wanted, &controller->label_value)) {
        add_text(reason, "the namespace is labelled " LABEL "=");
        add(reason, wanted->ptr, wanted->len);
        add_text(reason, ", and this is another pool");
    } else if (controller->unreachable.is_some) {
        add_text(reason, "it does not answer");
    } else if (!controller->has_nodes || contradicts(request, controller)) {
        add_text(reason, "no node that the Pods may run on reaches it");
    } else if (controller->unschedulable.is_some) {
        add(reason, controller->unschedulable.val.ptr, controller->unschedulable.val.len);
    } else if (controller->largest_free < request->ipus) {
        add_number(reason, controller->used_ipus);
        add_text(reason, " of its ");
        add_number(reason, controller->total_ipus);
        add_text(reason, " IPUs are used");
    } else {
        return false;
    }
    return true;
}

bool exports_ipu_policy_placer_validate_settings(placement_string_t *settings,
                                                 placement_string_t *error) {
    (void)settings;
    (void)error;
    return true;
}

bool exports_ipu_policy_placer_place(request_t *request,
                                     exports_ipu_policy_placer_list_controller_t *controllers,
                                     exports_ipu_policy_placer_list_attempt_t *attempts,
                                     exports_ipu_policy_placer_decision_t *decision,
                                     placement_string_t *error) {
    decision->tag = EXPORTS_IPU_POLICY_PLACER_DECISION_WAIT;
    decision->val.wait.len = controllers->len;
    // One more, since none at all may be NULL.
    decision->val.wait.ptr = calloc(controllers->len + 1, sizeof(passed_over_t));
    if (decision->val.wait.ptr == NULL) {
        placement_string_dup(error, "there is no memory for the reasons");
        return false;
    }
    for (size_t i = 0; i < controllers->len; i++) {
        const controller_t *controller = &controllers->ptr[i];
        reason_t reason = {.length = 0};
        if (!passed_over(request, controller, attempts, &reason)) {
            decision->tag = EXPORTS_IPU_POLICY_PLACER_DECISION_TRY;
            placement_string_dup_n(&decision->val.try_, (const char *)controller->name.ptr,
                                   controller->name.len);
            return true;
        }
        passed_over_t *passed = &decision->val.wait.ptr[i];
        placement_string_dup_n(&passed->controller, (const char *)controller->name.ptr,
                               controller->name.len);
        placement_string_dup_n(&passed->reason, reason.text, reason.length);
    }
    return true;
}
