//! Pure: the cluster and the allocation of a V-IPU controller in which the operator creates
//! partitions.
//!
//! An entry of the list of controllers names them after its node label:
//! `host:port:key=value:cluster=a:allocation=b`.

use ipu_api::dns1123::is_label_value;
use ipu_text::sanitize;

use super::proto;

/// Longest part of an invalid option in a message, in bytes.
const SHOWN_MAX: usize = 80;

/// The part of a V-IPU controller in which partitions are created. An empty name leaves the choice
/// to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateScope {
    /// Name of the cluster (`cluster_id` of a request).
    pub cluster: String,
    /// Name of the allocation (`allocation_id` of a request).
    pub allocation: String,
}

impl CreateScope {
    /// Parses the options of an entry, which follow its node label, or returns the violated rule.
    pub(super) fn parse<'a>(options: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut scope = Self::default();
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let field = match name {
                "cluster" => &mut scope.cluster,
                "allocation" => &mut scope.allocation,
                _ => {
                    return Err(format!(
                        "{:?} after the node label is no option; write cluster=<name> or \
                         allocation=<name>, or remove it",
                        sanitize(option, SHOWN_MAX)
                    ));
                }
            };
            if !field.is_empty() {
                return Err(format!("it names a {name} twice; remove one of the two"));
            }
            if value.is_empty() || !is_label_value(value) {
                return Err(format!(
                    "{name} {:?} is not a name of 1 to 63 letters, digits, `-`, `_` and `.`, with a \
                     letter or digit first and last",
                    sanitize(value, SHOWN_MAX)
                ));
            }
            value.clone_into(field);
        }
        Ok(scope)
    }

    /// Adds the names to a request.
    pub(super) fn add_to(&self, request: &mut proto::CreatePartitionRequest) {
        let requirements = request.requirements.get_or_insert_default();
        requirements.cluster_id.clone_from(&self.cluster);
        requirements.allocation_id.clone_from(&self.allocation);
    }
}
