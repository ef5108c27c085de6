//! Delivery objectives.

use crate::config::rule::ValueType;
use crate::config::slo;
use crate::config::table::section;
use crate::session::objectives::Objective;

section! {
    /// Delivery objectives, 16 at most: the share of deliveries that their receivers have to
    /// acknowledge in time. The first objective whose `topic` (a topic filter) and `client_id` (a
    /// glob over receivers; all if left out) match a delivery counts it. Only QoS 1 and 2 count.
    ///
    /// A delivery begins when its message reaches a connected receiver, or the receiver's queue.
    /// The delivery is in time if PUBACK (QoS 1) or PUBREC (QoS 2) comes `within` this time (10ms
    /// to 1d), and late if it is open when the time is over. A delivery that is dropped before is
    /// bad, too. Deliveries to receivers that are away are counted apart. `target` is the share
    /// that has to be in time, 0.5 to 1. `name` is the label of the metrics. docs/metrics.md has
    /// them.
    ///
    /// An objective that keeps its `name` and `within` over a reload keeps its counts; all others
    /// begin at 0.
    ///
    /// Each objective costs one match of its filter for each publication above QoS 0.
    [[slo]] Objective, ValueType::Tables("slo", slo::problems).only(), reload: Live,
    example: "[[slo]]\n\
              name = \"alarms\"\n\
              topic = \"alarms/#\"\n\
              within = \"5s\"\n\
              target = 0.999\n\
              \n\
              [[slo]]\n\
              name = \"pumps\"\n\
              topic = \"pumps/+/set\"\n\
              client_id = \"pump-*\"\n\
              within = \"500ms\"\n\
              target = 0.99\n";
}
