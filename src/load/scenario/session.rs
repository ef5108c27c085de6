//! stub
use crate::load::Trouble;
use crate::load::args::Session;
use crate::load::report::Report;
pub async fn perform(_arguments: &Session) -> Result<Report, Trouble> {
    Err(crate::load::plan::Refused("not yet".into()).into())
}
