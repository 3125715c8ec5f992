"""The table of all RPCs between nodes. A transport serves and calls exactly these."""

from __future__ import annotations

from kraftlite.model.messages import acls as a
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import faults as f
from kraftlite.model.messages import introspection as i
from kraftlite.model.messages import raft as r
from kraftlite.model.messages import replica as p
from kraftlite.model.messages import security as s
from kraftlite.model.messages import tokens
from kraftlite.model.messages import transactions as t
from kraftlite.model.method import AnyMethod, Method

VOTE = Method("Raft", "Vote", r.VoteRequest, r.VoteResponse)
BEGIN_QUORUM_EPOCH = Method("Raft", "BeginQuorumEpoch", r.BeginQuorumEpochRequest, r.BeginQuorumEpochResponse)
END_QUORUM_EPOCH = Method("Raft", "EndQuorumEpoch", r.EndQuorumEpochRequest, r.EndQuorumEpochResponse)
RAFT_FETCH = Method("Raft", "Fetch", r.RaftFetchRequest, r.RaftFetchResponse, hot=True)
FETCH_SNAPSHOT = Method("Raft", "FetchSnapshot", r.FetchSnapshotRequest, r.FetchSnapshotResponse)
ADD_VOTER = Method("Raft", "AddVoter", r.AddVoterRequest, r.AddVoterResponse)
REMOVE_VOTER = Method("Raft", "RemoveVoter", r.RemoveVoterRequest, r.RemoveVoterResponse)
UPDATE_VOTER = Method("Raft", "UpdateVoter", r.UpdateVoterRequest, r.UpdateVoterResponse)
PROBE_VERSIONS = Method("Raft", "ProbeVersions", r.ProbeVersionsRequest, r.ProbeVersionsResponse)
DESCRIBE_QUORUM = Method("Raft", "DescribeQuorum", r.DescribeQuorumRequest, r.DescribeQuorumResponse)

REGISTER_BROKER = Method("Controller", "RegisterBroker", c.BrokerRegistrationRequest, c.BrokerRegistrationResponse)
BROKER_HEARTBEAT = Method("Controller", "BrokerHeartbeat", c.BrokerHeartbeatRequest, c.BrokerHeartbeatResponse)
UNREGISTER_BROKER = Method("Controller", "UnregisterBroker", c.UnregisterBrokerRequest, c.Empty)
REGISTER_CONTROLLER = Method("Controller", "RegisterController", c.ControllerRegistrationRequest, c.Empty)
ALTER_PARTITION = Method("Controller", "AlterPartition", c.AlterPartitionRequest, c.AlterPartitionResponse)
ASSIGN_REPLICAS_TO_DIRS = Method(
    "Controller", "AssignReplicasToDirs", c.AssignReplicasToDirsRequest, c.AssignReplicasToDirsResponse
)
ELECT_LEADERS = Method("Controller", "ElectLeaders", c.ElectLeadersRequest, c.ElectLeadersResponse)
ALLOCATE_PRODUCER_IDS = Method("Controller", "AllocateProducerIds", c.AllocateProducerIdsRequest, c.AllocateProducerIdsResponse)
CREATE_TOPICS = Method("Controller", "CreateTopics", c.CreateTopicsRequest, c.CreateTopicsResponse)
DELETE_TOPICS = Method("Controller", "DeleteTopics", c.DeleteTopicsRequest, c.DeleteTopicsResponse)
CREATE_PARTITIONS = Method("Controller", "CreatePartitions", c.CreatePartitionsRequest, c.CreatePartitionsResponse)
INCREMENTAL_ALTER_CONFIGS = Method(
    "Controller", "IncrementalAlterConfigs", c.IncrementalAlterConfigsRequest, c.AlterConfigsResponse
)
ALTER_CONFIGS = Method("Controller", "AlterConfigs", c.AlterConfigsRequest, c.AlterConfigsResponse)
ALTER_CLIENT_QUOTAS = Method("Controller", "AlterClientQuotas", s.AlterClientQuotasRequest, s.AlterClientQuotasResponse)
ALTER_USER_SCRAM_CREDENTIALS = Method(
    "Controller", "AlterUserScramCredentials", s.AlterUserScramCredentialsRequest, s.AlterUserScramCredentialsResponse
)
CREATE_DELEGATION_TOKEN = Method(
    "Controller", "CreateDelegationToken", tokens.CreateDelegationTokenRequest, tokens.CreateDelegationTokenResponse
)
RENEW_DELEGATION_TOKEN = Method(
    "Controller", "RenewDelegationToken", tokens.RenewDelegationTokenRequest, tokens.ChangedDelegationTokenResponse
)
EXPIRE_DELEGATION_TOKEN = Method(
    "Controller", "ExpireDelegationToken", tokens.ExpireDelegationTokenRequest, tokens.ChangedDelegationTokenResponse
)
CREATE_ACLS = Method("Controller", "CreateAcls", a.CreateAclsRequest, a.CreateAclsResponse)
DELETE_ACLS = Method("Controller", "DeleteAcls", a.DeleteAclsRequest, a.DeleteAclsResponse)
ALTER_PARTITION_REASSIGNMENTS = Method(
    "Controller",
    "AlterPartitionReassignments",
    c.AlterPartitionReassignmentsRequest,
    c.AlterPartitionReassignmentsResponse,
)
LIST_PARTITION_REASSIGNMENTS = Method(
    "Controller", "ListPartitionReassignments", c.ListPartitionReassignmentsRequest, c.ListPartitionReassignmentsResponse
)
UPDATE_FEATURES = Method("Controller", "UpdateFeatures", c.UpdateFeaturesRequest, c.UpdateFeaturesResponse)

REPLICA_FETCH = Method("Replica", "Fetch", p.ReplicaFetchRequest, p.ReplicaFetchResponse, hot=True)
REPLICA_OFFSETS = Method("Replica", "Offsets", p.ReplicaOffsetsRequest, p.ReplicaOffsetsResponse)

WRITE_MARKERS = Method("Transactions", "WriteMarkers", t.WriteMarkersRequest, t.WriteMarkersResponse)
ENROLL = Method("Transactions", "Enroll", t.EnrollRequest, t.EnrollResponse)

NODE_STATUS = Method("Introspection", "NodeStatus", i.NodeStatusRequest, i.NodeStatusResponse)
REPLICA_STATES = Method("Introspection", "ReplicaStates", i.ReplicaStatesRequest, i.ReplicaStatesResponse)
WATCH = Method("Introspection", "Watch", i.WatchRequest, i.WatchResponse, streamed=True)

INJECT_FAULT = Method("Faults", "Inject", f.InjectRequest, f.InjectResponse)
END_FAULTS = Method("Faults", "End", f.EndFaultsRequest, f.EndFaultsResponse)
LIST_FAULTS = Method("Faults", "List", f.ListFaultsRequest, f.ListFaultsResponse)

ALL_METHODS: tuple[AnyMethod, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Method))
