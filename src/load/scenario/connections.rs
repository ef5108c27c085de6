//! stub
use crate::load::Trouble;
use crate::load::args::Connections;
use crate::load::report::Report;
pub async fn perform(_arguments: &Connections) -> Result<Report, Trouble> {
    Err(crate::load::plan::Refused("not yet".into()).into())
}
