//! stub
use crate::load::Trouble;
use crate::load::args::Redelivery;
use crate::load::report::Report;
pub async fn perform(_arguments: &Redelivery) -> Result<Report, Trouble> {
    Err(crate::load::plan::Refused("not yet".into()).into())
}
