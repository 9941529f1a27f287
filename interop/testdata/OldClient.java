import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Produces with each codec, reads all of it back in a group, commits, and sees that a second member goes on there. Compiles against 0.10.2. */
public class OldClient {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4"};
    static final int EACH = 200;

    @SuppressWarnings("deprecation")
    public static void main(String[] args) throws Exception {
        String boot = args[0], topic = args[1];
        int sent = 0;
        for (String codec : CODECS) {
            Properties p = new Properties();
            p.put("bootstrap.servers", boot);
            p.put("compression.type", codec);
            p.put("acks", "all");
            p.put("linger.ms", "5"); // batches of more than one record
            p.put("retries", "20"); // a topic that is being created
            p.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            p.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            KafkaProducer<String, String> producer = new KafkaProducer<>(p);
            for (int i = 0; i < EACH; i++, sent++) producer.send(new ProducerRecord<>(topic, 0, 1000L + sent, "k" + sent, "v" + sent));
            producer.close();
        }
        KafkaConsumer<String, String> consumer = consumer(boot, topic);
        for (int got = 0; got < sent; ) {
            ConsumerRecords<String, String> records = consumer.poll(500);
            for (ConsumerRecord<String, String> r : records) {
                if (r.offset() != got || !r.key().equals("k" + got) || !r.value().equals("v" + got) || r.timestamp() != 1000L + got)
                    throw new IllegalStateException("record " + got + " is " + r);
                got++;
            }
        }
        consumer.commitSync();
        consumer.close();
        KafkaConsumer<String, String> next = consumer(boot, topic);
        if (!next.poll(2000).isEmpty()) throw new IllegalStateException("what was committed is read again");
        next.close();
        System.out.println("all equal");
    }

    static KafkaConsumer<String, String> consumer(String boot, String topic) {
        Properties c = new Properties();
        c.put("bootstrap.servers", boot);
        c.put("group.id", topic + "-group");
        c.put("auto.offset.reset", "earliest");
        c.put("enable.auto.commit", "false");
        c.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        c.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(c);
        consumer.subscribe(Arrays.asList(topic));
        return consumer;
    }
}
