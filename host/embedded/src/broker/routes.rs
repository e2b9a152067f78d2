//! Which Kafka requests the broker answers.
//!
//! Those that this version of Tansu answers well, and no other: one
//! DeleteTopics request deletes every topic, DeleteRecords leaves a topic that
//! can't be read, and transactions and descriptions of groups are not whole.
//! A request that has no route is not announced to clients either, so that a
//! client says "unsupported" where it would have done harm.

use rama::Layer;
use tansu_broker::Error;
use tansu_broker::coordinator::group::Coordinator;
use tansu_broker::service::{coordinator, storage};
use tansu_service::{
    BytesFrameLayer, BytesFrameService, FrameRouteService, TcpBytesLayer, TcpBytesService,
    TcpContext, TcpContextLayer, TcpContextService,
};
use tansu_storage::Storage;

/// Serves one connection.
pub(super) type Connection =
    TcpContextService<TcpBytesService<BytesFrameService<FrameRouteService<(), Error>>, ()>>;

pub(super) fn connection<C, S>(cluster: &str, groups: C, storage: S) -> Result<Connection, Error>
where
    C: Coordinator,
    S: Storage,
{
    let on_storage = [
        storage::create_topics,
        storage::describe_cluster,
        storage::describe_configs,
        storage::describe_topic_partitions,
        storage::fetch,
        storage::find_coordinator,
        storage::init_producer_id,
        storage::list_groups,
        storage::list_offsets,
        storage::metadata,
        storage::produce,
    ];
    let routes = on_storage
        .iter()
        .try_fold(
            FrameRouteService::<(), Error>::builder(),
            |routes, route| route(routes, storage.clone()),
        )
        .and_then(|routes| coordinator::services(routes, groups))
        .and_then(|routes| routes.build().map_err(Into::into))?;
    let context = TcpContext::default().cluster_id(Some(cluster.to_owned()));
    let layers = (
        TcpContextLayer::new(context),
        TcpBytesLayer::default(),
        BytesFrameLayer::default().with_sasl_config(None),
    );
    Ok(layers.into_layer(routes))
}
