//! Closed loop: a connection, with HTTP/2 each of its streams, sends its next request when it has the answer to the last.

use std::{
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    connection::Connection,
    failure::Failure,
    plan::Until,
    run::Share,
    user::{Desk, Job, User},
};

/// Pause of a user that got no connection: a server that is down is not asked a hundred thousand times a second.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn drive<C: Connection>(
    desk: &Rc<Desk>,
    connections: usize,
    until: Until,
    share: &Rc<Share>,
) {
    let mut users = JoinSet::new();
    for _ in 0..connections {
        let line = Rc::<C::Line>::default();
        for _ in 0..desk.load.streams {
            let (user, share) = (User::<C>::new(Rc::clone(desk), Rc::clone(&line)), Rc::clone(share));
            users.spawn_local(async move { run(user, &share, until).await });
        }
    }
    while users.join_next().await.is_some() {}
}

async fn run<C: Connection>(mut user: User<C>, share: &Share, until: Until) {
    let mut now = Instant::now();
    loop {
        // Whoever drives the thread ends this then, unless the requests under way are waited for.
        if matches!(until, Until::Duration(duration) if now >= share.start + duration) {
            return;
        }
        let number = share.taken.fetch_add(1, Relaxed);
        if matches!(until, Until::Requests(requests) if number >= requests) {
            return;
        }
        let job = Job { number, phase: 0, origin: now, waited: Duration::ZERO };
        let (done, failure) = user.send(job, now).await;
        now = done;
        if matches!(failure, Some(Failure::Local | Failure::Refused | Failure::Connect)) {
            tokio::time::sleep(PAUSE).await;
            now = Instant::now();
        }
    }
}
