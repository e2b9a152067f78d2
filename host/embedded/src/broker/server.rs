//! Accepts connections, and looks after what is stored.

use std::time::{Duration, SystemTime};

use rama::{Context, Service};
use tansu_broker::Error;
use tansu_broker::coordinator::group::administrator::Controller;
use tansu_storage::{BrokerRegistrationRequest, Storage, StorageContainer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::routes;

/// The same at every start: clients remember both.
const CLUSTER: &str = "cdr";
const NODE: i32 = 1;

/// Between two removals of records that are older than their topic keeps them.
const MAINTENANCE: Duration = Duration::from_secs(600);
/// After a failed accept, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An open storage and what serves it.
pub(super) struct Server {
    storage: StorageContainer,
    groups: Controller<StorageContainer>,
    closing: CancellationToken,
}

impl Server {
    /// Opens the file `name` in the working directory, or makes it.
    pub(super) async fn open(name: &str, port: u16) -> Result<Self, Error> {
        let closing = CancellationToken::new();
        let storage = StorageContainer::builder()
            .cluster_id(CLUSTER)
            .node_id(NODE)
            .advertised_listener(Url::parse(&format!("tcp://127.0.0.1:{port}"))?)
            .schema_registry(None)
            .lake_house(None)
            .storage(Url::parse(&format!("sqlite:///{name}"))?)
            .cancellation(closing.clone())
            .silent(true)
            .build()
            .await?;
        storage
            .register_broker(BrokerRegistrationRequest {
                broker_id: NODE,
                cluster_id: CLUSTER.to_owned(),
                incarnation_id: uuid::Uuid::new_v4(),
                rack: None,
            })
            .await?;
        let groups = Controller::with_storage(storage.clone())?;
        Ok(Self {
            storage,
            groups,
            closing,
        })
    }

    /// Serves until `stop`; then breaks all connections off and closes the storage.
    ///
    /// What was not acknowledged by then may be stored or not, as at any loss of a connection.
    pub(super) async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut tasks = JoinSet::new();
        let mut maintenance = tokio::time::interval(MAINTENANCE);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let _ = stream.set_nodelay(true);
                        let connection =
                            routes::connection(CLUSTER, self.groups.clone(), self.storage.clone())?;
                        tasks.spawn(async move {
                            // Also how every connection ends that a client closes.
                            if let Err(error) = connection.serve(Context::default(), stream).await {
                                tracing::debug!(event = "connection_ended", %peer, %error, "connection ended");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(event = "accept_failed", %error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                _ = maintenance.tick() => {
                    let storage = self.storage.clone();
                    tasks.spawn(async move {
                        if let Err(error) = storage.maintain(SystemTime::now()).await {
                            tracing::warn!(event = "maintenance_failed", %error, "old records could not be removed");
                        }
                    });
                }
                Some(_) = tasks.join_next() => {}
            }
        }
        tasks.shutdown().await;
        self.closing.cancel();
        Ok(())
    }
}
