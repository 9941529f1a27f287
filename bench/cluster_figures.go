package main

// The figures of clusters, by the names the table shows.
const (
	startThreeFigure      = "three brokers from nothing to the first record on all of them"
	idleThreeFigure       = "RSS of the three, idle"
	kibThreeFigure        = "produce 1 KiB, acks=all, RF 3, one client"
	kibThreeCPUFigure     = "produce 1 KiB, RF 3, CPU of all servers per record"
	smallThreeFigure      = "produce 100 B, acks=all, RF 3, one client"
	smallThreeCPUFigure   = "produce 100 B, RF 3, CPU of all servers per record"
	p50ThreeFigure        = "one 100 B record at a time, acks=all, RF 3, p50"
	p99ThreeFigure        = "one 100 B record at a time, acks=all, RF 3, p99"
	loadThreeRSSFigure    = "RSS of the three after the load"
	createThreeFigure     = "create a topic of 1 partition RF 3, response"
	deleteThreeFigure     = "delete it, response"
	deleteGoneThreeFigure = "delete it: gone from all brokers"
	rssThousandsFigure    = "RSS of the three with 3,000 partitions RF 3"
	createTenFigure       = "create 10,000 partitions RF 3 (100 topics): each takes a record"
	rssTenFigure          = "RSS of the three with 10,000 partitions RF 3"
	deleteTenFigure       = "delete 10,000 partitions RF 3, response"
	goneTenFigure         = "delete 10,000 partitions RF 3: gone from all brokers"
)

var (
	bigThree = creation{"topic of 2,000 partitions RF 3: response", "topic of 2,000 partitions RF 3: each takes a record",
		"topic of 2,000 partitions RF 3: each has a record on three brokers", "delete 2,000 partitions RF 3: gone from all brokers"}
	manyThree = creation{"1,000 topics RF 3 in one request: response", "1,000 topics RF 3 in one request: each takes a record",
		"1,000 topics RF 3 in one request: each has a record on three brokers", "delete 1,000 topics RF 3: gone from all brokers"}
	shutdownFigures = moveFigures{"SIGTERM to a broker leading 1,000 of 3,000: all have new leaders", "SIGTERM to a broker leading 1,000 of 3,000: exit"}
	brokerFigures   = failoverFigures{"kill -9 of a broker leading 1,000 of 3,000: new leaders, since the kill",
		"kill -9 of a broker leading 1,000 of 3,000: new leaders, since its registration went",
		"kill -9 of a broker leading 1,000 of 3,000: each takes a record, since its registration went"}
	controllerFigures = failoverFigures{"kill -9 of the controller leading 1,000 of 3,000: new leaders, since the kill",
		"kill -9 of the controller leading 1,000 of 3,000: new leaders, since its registration went",
		"kill -9 of the controller leading 1,000 of 3,000: each takes a record, since its registration went"}
	tenFigures = failoverFigures{"kill -9 of the controller of 10,000: new leaders, since the kill",
		"kill -9 of the controller of 10,000: new leaders, since its registration went",
		"kill -9 of the controller of 10,000: each takes a record, since its registration went"}
	shutdownTenFigures = moveFigures{"SIGTERM to a broker leading a third of 10,000: all have new leaders", "SIGTERM to a broker leading a third of 10,000: exit"}
)

// clusterFigures in the order of the table.
var clusterFigures = []figure{
	{startThreeFigure, "ms", false}, {idleThreeFigure, "MiB", false},
	{kibThreeFigure, "rec/s", true}, {kibThreeCPUFigure, "µs", false}, {smallThreeFigure, "rec/s", true}, {smallThreeCPUFigure, "µs", false},
	{p50ThreeFigure, "ms", false}, {p99ThreeFigure, "ms", false}, {loadThreeRSSFigure, "MiB", false},
	{createThreeFigure, "ms", false}, {deleteThreeFigure, "ms", false}, {deleteGoneThreeFigure, "ms", false},
	{bigThree.response, "ms", false}, {bigThree.usable, "ms", false}, {bigThree.held, "ms", false}, {bigThree.gone, "ms", false},
	{manyThree.response, "ms", false}, {manyThree.usable, "ms", false}, {manyThree.held, "ms", false}, {manyThree.gone, "ms", false},
	{rssThousandsFigure, "MiB", false}, {shutdownFigures.moved, "ms", false}, {shutdownFigures.exit, "ms", false},
	{brokerFigures.sinceKill, "ms", false}, {brokerFigures.leaders, "ms", false}, {brokerFigures.records, "ms", false},
	{controllerFigures.sinceKill, "ms", false}, {controllerFigures.leaders, "ms", false}, {controllerFigures.records, "ms", false},
	{createTenFigure, "ms", false}, {rssTenFigure, "MiB", false},
	{tenFigures.sinceKill, "ms", false}, {tenFigures.leaders, "ms", false}, {tenFigures.records, "ms", false},
	{shutdownTenFigures.moved, "ms", false}, {shutdownTenFigures.exit, "ms", false},
	{deleteTenFigure, "ms", false}, {goneTenFigure, "ms", false},
}
