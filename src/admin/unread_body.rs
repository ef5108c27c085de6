//! The refusal of a request whose body may never end.
//!
//! The HTTP server reads an unread body in chunks to its end before it closes the connection, and
//! has no time for that. So a client that never ends its body would hold one of the few places for
//! ever. The server closes the connection after a second if somebody still has the body when the
//! answer is written. So the answer has it.

use super::problem::problem_answer;
use super::problem_kind::ProblemKind;
use actix_web::HttpMessage;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::TRANSFER_ENCODING;
use actix_web::web::Bytes;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer that keeps the unread body of its request.
struct KeepingBody {
    answer: BoxBody,
    _unread: Payload,
}

impl MessageBody for KeepingBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().answer).poll_next(cx)
    }
}

/// Returns true if a request has a body without a length.
pub(super) fn has_no_length(request: &ServiceRequest) -> bool {
    request.headers().contains_key(TRANSFER_ENCODING)
}

/// Refuses a request whose body has no length.
pub(super) fn refuse(mut request: ServiceRequest) -> ServiceResponse {
    let unread = request.take_payload();
    let answer = problem_answer(ProblemKind::LengthRequired, "send the body with the header Content-Length");
    let answer = answer.map_body(|_, answer| BoxBody::new(KeepingBody { answer, _unread: unread }));
    request.into_response(answer)
}
