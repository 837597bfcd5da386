//! The loops: when a generator thread sends its requests. One file for each form of load.

mod closed;
mod scheduled;
mod threads;

use std::{io, rc::Rc};

use crate::{
    connection::{Connection, Engine, Http2, Http3, Hyper, Lean},
    plan::Plan,
    run::{Share, Version},
    user::Desk,
};

/// Does this thread's share of the load. Returns when it is done; may be dropped at any await to end it early.
pub(crate) async fn drive(desk: &Rc<Desk>, share: &Rc<Share>) -> io::Result<()> {
    match (desk.load.version, desk.load.engine) {
        (Version::Http3, _) => drive_with::<Http3>(desk, share).await,
        (Version::Http2, _) => drive_with::<Http2>(desk, share).await,
        (Version::Http1, Engine::Lean) => drive_with::<Lean>(desk, share).await,
        (Version::Http1, Engine::Hyper) => drive_with::<Hyper>(desk, share).await,
    }
}

async fn drive_with<C: Connection>(desk: &Rc<Desk>, share: &Rc<Share>) -> io::Result<()> {
    let load = &desk.load;
    match &load.plan {
        Plan::Scheduled(schedule) => scheduled::drive::<C>(desk, schedule, share).await,
        Plan::Closed { connections, until } => {
            closed::drive::<C>(desk, share.of(*connections), *until, share).await;
            Ok(())
        }
        Plan::Threads { threads, ramp_up, loops } => {
            threads::drive::<C>(desk, *threads, *ramp_up, *loops, share).await;
            Ok(())
        }
    }
}
