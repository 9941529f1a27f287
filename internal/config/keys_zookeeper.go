package config

// zookeeperKeys are about ZooKeeper as the place of the cluster's state.
var zookeeperKeys = []*Definition{
	null("zookeeper.clientCnxnSocket", String, Medium, nil, "Java class of the ZooKeeper connection."),
	null("zookeeper.connect", String, High, nil, "ZooKeeper that keeps the state of the cluster: host:port of its servers between commas, then the root path of the cluster if it has one. Without it the state is in etcd."),
	null("zookeeper.connection.timeout.ms", Int, High, nil, "Longest wait for a connection to ZooKeeper; zookeeper.session.timeout.ms if not set."),
	own(def("zookeeper.max.in.flight.requests", Int, "1024", High, atLeast(1), "Requests to ZooKeeper on their way at a time; large ones count for several. Kafka's default is 10.")),
	def("zookeeper.metadata.migration.enable", Boolean, "false", High, nil, "Whether the cluster moves from ZooKeeper to KRaft."),
	internal(def("zookeeper.metadata.migration.min.batch.size", Int, "200", Medium, atLeast(1), "Records per batch of that move.")),
	own(null("zookeeper.sasl.jaas.config", Password, Medium, nil, "Login at ZooKeeper by DIGEST-MD5, written as in the section Client of the JAAS file of Kafka's brokers.")),
	def("zookeeper.session.timeout.ms", Int, "18000", High, nil, "How long ZooKeeper waits for a silent broker before it counts as dead. The server may grant another time."),
	def("zookeeper.set.acl", Boolean, "false", High, nil, "Whether nodes in ZooKeeper can be changed by their creator only. It takes a login, by zookeeper.sasl.jaas.config or a certificate."),
	null("zookeeper.ssl.cipher.suites", List, Low, nil, "TLS ciphers towards ZooKeeper."),
	def("zookeeper.ssl.client.enable", Boolean, "false", Medium, nil, "Whether ZooKeeper is reached over TLS."),
	def("zookeeper.ssl.crl.enable", Boolean, "false", Low, nil, "Whether revocation lists are used towards ZooKeeper."),
	null("zookeeper.ssl.enabled.protocols", List, Low, nil, "TLS versions towards ZooKeeper; TLSv1.2 and TLSv1.3 if not set."),
	def("zookeeper.ssl.endpoint.identification.algorithm", String, "HTTPS", Low, nil, "How ZooKeeper's name is checked against its certificate."),
	null("zookeeper.ssl.keystore.location", String, Medium, nil, "File with the private key and the certificates that ZooKeeper is shown."),
	null("zookeeper.ssl.keystore.password", Password, Medium, nil, "Password of that file and of the key in it."),
	null("zookeeper.ssl.keystore.type", String, Medium, nil, "Format of that file: JKS, PKCS12 or PEM."),
	def("zookeeper.ssl.ocsp.enable", Boolean, "false", Low, nil, "Whether OCSP is used towards ZooKeeper."),
	def("zookeeper.ssl.protocol", String, "TLSv1.2", Low, nil, "Preferred TLS version towards ZooKeeper."),
	null("zookeeper.ssl.truststore.location", String, Medium, nil, "File with the authorities that ZooKeeper's certificate must come from; the system's if not set."),
	null("zookeeper.ssl.truststore.password", Password, Medium, nil, "Password of that file."),
	null("zookeeper.ssl.truststore.type", String, Medium, nil, "Format of that file: JKS, PKCS12 or PEM."),
}
