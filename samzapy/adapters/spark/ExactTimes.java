package samzapy.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaRecordToRowConverter;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;

/**
 * Spark's source for Kafka, with one difference: the column "timestamp" holds the record's milliseconds as they are,
 * where Spark holds microseconds. Why is said in exact_times.py.
 *
 * <p>Everything is Spark's own but the reader of a partition. Java without generics and lambdas, as Janino compiles it.
 */
public class ExactTimes implements TableProvider {
    private final KafkaSourceProvider kafka = new KafkaSourceProvider();

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return kafka.inferSchema(options);
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return (Table) Wrapper.around(kafka.getTable(schema, partitioning, properties));
    }

    /** An object of Spark's that leads to rows: table, scan builder, scan, stream. The stream gets another reader. */
    public static class Wrapper implements InvocationHandler {
        private final Object inner;

        Wrapper(Object inner) {
            this.inner = inner;
        }

        static Object around(Object inner) {
            Set interfaces = new LinkedHashSet();
            for (Class type = inner.getClass(); type != null; type = type.getSuperclass()) {
                Class[] own = type.getInterfaces();
                for (int index = 0; index < own.length; index++) {
                    interfaces.add(own[index]);
                }
            }
            Class[] all = (Class[]) interfaces.toArray(new Class[interfaces.size()]);
            return Proxy.newProxyInstance(Wrapper.class.getClassLoader(), all, new Wrapper(inner));
        }

        public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            String name = method.getName();
            // Spark keeps streams as keys of maps.
            if (name.equals("equals")) {
                return Boolean.valueOf(proxy == arguments[0]);
            }
            if (name.equals("hashCode")) {
                return Integer.valueOf(System.identityHashCode(proxy));
            }
            if (name.equals("createReaderFactory")) {
                return new Factory();
            }
            Object result;
            try {
                result = method.invoke(inner, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
            boolean leadsToRows =
                result instanceof ScanBuilder || result instanceof Scan || result instanceof MicroBatchStream;
            return leadsToRows ? around(result) : result;
        }
    }

    /** Goes to the threads that run a batch's tasks. */
    public static class Factory implements PartitionReaderFactory {
        public PartitionReader createReader(InputPartition partition) {
            return new Reader((KafkaBatchInputPartition) partition);
        }
    }

    /** As Spark's KafkaBatchPartitionReader, over the same consumer. */
    public static class Reader implements PartitionReader {
        // The place of "timestamp" in the source's schema.
        private static final int TIMESTAMP = 5;

        private final KafkaBatchInputPartition partition;
        private final KafkaDataConsumer consumer;
        private final Function1 toRow;
        private long nextOffset;
        private UnsafeRow row;

        Reader(KafkaBatchInputPartition partition) {
            this.partition = partition;
            this.consumer = KafkaDataConsumer.acquire(
                partition.offsetRange().topicPartition(), partition.executorKafkaParams());
            this.toRow = new KafkaRecordToRowConverter().toUnsafeRowProjector(partition.includeHeaders());
            this.nextOffset = partition.offsetRange().fromOffset();
        }

        public boolean next() {
            long end = partition.offsetRange().untilOffset();
            if (nextOffset >= end) {
                return false;
            }
            ConsumerRecord record = consumer.get(
                nextOffset, end, partition.pollTimeoutMs(), partition.failOnDataLoss());
            if (record == null) {
                return false;
            }
            row = (UnsafeRow) toRow.apply(new ConsumerRecord(
                record.topic(), record.partition(), record.offset(), 0L, record.timestampType(),
                record.serializedKeySize(), record.serializedValueSize(), record.key(), record.value(),
                record.headers(), record.leaderEpoch()));
            row.setLong(TIMESTAMP, record.timestamp());
            nextOffset = record.offset() + 1;
            return true;
        }

        public Object get() {
            return row;
        }

        public void close() {
            consumer.release();
        }
    }
}
