import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Runs a ZooKeeper, a broker and its clients in this process for a moment, so that the JVM loads their classes: with -XX:ArchiveClassesAtExit
 * it keeps them as they are then, for JVMs that start later.
 */
public class Archive {
    public static void main(String[] none) throws Exception {
        Path dir = Files.createTempDirectory("archive");
        int zooKeeper = freePort(), broker = freePort();
        Path zooKeeperConfig = Files.writeString(dir.resolve("zk.cfg"), "dataDir=" + dir.resolve("zk") + "\nclientPort=" + zooKeeper
            + "\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n");
        Path brokerConfig = Files.writeString(dir.resolve("server.properties"), "broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:" + broker + "\nlog.dirs="
            + dir.resolve("log") + "\nzookeeper.connect=127.0.0.1:" + zooKeeper + "\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
            + "group.initial.rebalance.delay.ms=0\ncontrolled.shutdown.enable=false\n");
        start("org.apache.zookeeper.server.quorum.QuorumPeerMain", zooKeeperConfig, zooKeeper);
        start("kafka.Kafka", brokerConfig, broker);
        String address = "127.0.0.1:" + broker, texts = "org.apache.kafka.common.serialization.String";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of("bootstrap.servers", address, "key.serializer", texts + "Serializer",
                "value.serializer", texts + "Serializer"))) {
            producer.send(new ProducerRecord<>("t", "x")).get();
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", address, "key.deserializer", texts + "Deserializer",
                "value.deserializer", texts + "Deserializer", "group.id", "g", "auto.offset.reset", "earliest"))) {
            consumer.subscribe(List.of("t"));
            while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) { }
        }
        System.exit(0);
    }

    static int freePort() throws Exception {
        try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return s.getLocalPort();
        }
    }

    static void start(String server, Path config, int port) throws Exception {
        Thread thread = new Thread(() -> {
            try {
                Class.forName(server).getMethod("main", String[].class).invoke(null, (Object) new String[] {config.toString()});
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        });
        thread.setDaemon(true);
        thread.start();
        while (true) {
            try (Socket s = new Socket(InetAddress.getLoopbackAddress(), port)) {
                return;
            } catch (java.io.IOException e) {
                Thread.sleep(20);
            }
        }
    }
}
