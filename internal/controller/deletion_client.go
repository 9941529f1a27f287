package controller

// deletionClient carries out what the topicDeletionManager decides outside of the state machines (Kafka: DeletionClient and
// ControllerDeletionClient).
type deletionClient struct{ c *Core }

// deleteTopics removes, for all topics at once, the tree /brokers/topics/T, then /config/topics/T, then the marker. The order is what makes
// a crash harmless: while the marker stands nobody can create the name, and a new controller takes the deletion up
// again; with the tree gone it finds a topic without replicas and only removes the rest.
//
// A topic node that is another incarnation by now was created by hand in the middle of the deletion. It
// stays, with its configuration; only the marker goes. Its name is returned.
func (dc deletionClient) deleteTopics(ds []*topicDeletion) (reborn []string, err error) {
	m := dc.c.tdm()
	var trees []*topicDeletion
	for _, d := range ds {
		d.removing = true
		if d.topic != nil {
			trees = append(trees, d)
		}
	}
	kept, failed := map[*topicDeletion]bool{}, map[*topicDeletion]bool{}
	check := func(ds []*topicDeletion, what string, items []ItemResult) {
		for i, d := range ds {
			switch items[i].Status {
			case ItemOK, ItemNoNode:
			case ItemConflict:
				kept[d] = true
			default:
				failed[d] = true
				d.ineligible = true
				m.retryLater(d, itemError(what, items[i]))
			}
		}
	}
	if err := dc.step(trees, func(refs []NodeRef) StoreOp { return DeleteTopicTrees{refs} }, treeRef, "remove the topic node", check); err != nil {
		return nil, err
	}
	configs := withoutThose(withoutThose(ds, failed), kept)
	names := func(refs []NodeRef) StoreOp { return DeleteTopicConfigs{topicNames(refs)} }
	if err := dc.step(configs, names, treeRef, "remove the topic configuration", check); err != nil {
		return nil, err
	}
	markers := withoutThose(ds, failed)
	ignoreConflict := func(ds []*topicDeletion, what string, items []ItemResult) {
		for i := range items {
			if items[i].Status == ItemConflict { // somebody queued the name anew; TopicDeletion will tell
				items[i].Status = ItemOK
			}
		}
		check(ds, what, items)
	}
	if err := dc.step(markers, func(refs []NodeRef) StoreOp { return DeleteMarkers{refs} }, markerRef, "remove the marker", ignoreConflict); err != nil {
		return nil, err
	}
	done := withoutThose(ds, failed)
	m.forget(done)
	for _, d := range done {
		if kept[d] {
			dc.c.note(Warn, "topic was created again during its deletion and is kept", d.name, "")
			reborn = append(reborn, d.name)
		}
	}
	return reborn, nil
}

// step runs one kind of removal for many topics in bounded effects.
func (dc deletionClient) step(ds []*topicDeletion, op func([]NodeRef) StoreOp, ref func(*topicDeletion) NodeRef, what string,
	check func([]*topicDeletion, string, []ItemResult)) error {
	return chunks(dc.c, ds, func(ds []*topicDeletion) error {
		refs := make([]NodeRef, len(ds))
		for i, d := range ds {
			refs[i] = ref(d)
		}
		items, err := dc.c.remove(op(refs), len(ds))
		if err == nil {
			check(ds, what, items)
		}
		return err
	})
}

func treeRef(d *topicDeletion) NodeRef {
	if d.topic == nil {
		return NodeRef{d.name, AnyCzxid}
	}
	return NodeRef{d.name, d.topic.czxid}
}

func markerRef(d *topicDeletion) NodeRef { return NodeRef{d.name, d.markerCzxid} }

func topicNames(refs []NodeRef) []string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.Topic
	}
	return names
}

func withoutThose(ds []*topicDeletion, drop map[*topicDeletion]bool) []*topicDeletion {
	out := make([]*topicDeletion, 0, len(ds))
	for _, d := range ds {
		if !drop[d] {
			out = append(out, d)
		}
	}
	return out
}

// deleteMarkers removes markers alone: of topics that do not exist, of earlier incarnations, or with deletion disabled. It
// gives those that are gone, also when an error ended it.
func (dc deletionClient) deleteMarkers(markers []Marker) (removed []NodeRef, err error) {
	err = chunks(dc.c, markers, func(markers []Marker) error {
		refs := make([]NodeRef, len(markers))
		for i, k := range markers {
			refs[i] = NodeRef{k.Topic, k.Czxid}
		}
		items, err := dc.c.remove(DeleteMarkers{refs}, len(refs))
		for i := range items {
			switch items[i].Status {
			case ItemOK:
				removed = append(removed, refs[i])
			case ItemFailed:
				dc.c.note(Warn, "deletion marker could not be removed", refs[i].Topic, items[i].Err)
				dc.c.ctx.markersLeft = true
				dc.c.armPartitionRetry()
			}
		}
		return err
	})
	return removed, err
}

// mutePartitionModifications drops the watch on the topic node, so that neither its removal nor a successor that
// is created at once raises PartitionModifications before TopicChange has armed the new watch.
func (dc deletionClient) mutePartitionModifications(topic string) {
	dc.c.emit(Unwatch{Watched{Kind: WatchTopic, Topic: topic}})
	if t := dc.c.ctx.topics[topic]; t != nil {
		dc.c.unwatchStates(t)
	}
}

// sendMetadataUpdate tells all brokers to forget the partitions of queued topics.
func (dc deletionClient) sendMetadataUpdate(ps []*partitionContext) {
	dc.c.sendUpdateMetadata(dc.c.ctx.brokerIDs(), ps...)
}
