package cleanerd.agent;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;

/** Replaces the self-test: how long the log's lock is held, in a log of many segments and producers. */
final class Measured {
    private static final int SEGMENTS = Integer.getInteger("cleanerd.test.segments");
    private static final int PRODUCERS = Integer.getInteger("cleanerd.test.producers");
    private static final int AT_ONCE = 1000;
    private static final int PRODUCER_AT = 43;
    private static final int WARM_UP = 20;
    private static final int SLICE = 100_000;
    private static final int TRIES = 20;
    private static final int WITHIN = 5; // the buckets of up to 10 ms

    private Measured() {}

    static SelfTest.Result of(Broker broker, SelfTestLog log) {
        try {
            long offset = log.logEndOffset();
            for (int i = 0; i < SEGMENTS; i++) {
                log.append(SelfTestData.batch(offset++));
                log.roll();
            }
            List<Long> ids = new ArrayList<>();
            while (ids.size() < PRODUCERS) {
                ByteArrayOutputStream batches = new ByteArrayOutputStream();
                for (int i = 0; i < AT_ONCE; i++) {
                    ids.add(1000L + ids.size());
                    batches.writeBytes(batch(offset++, ids.get(ids.size() - 1)));
                }
                log.append(batches.toByteArray());
            }
            List<Long> some = ids.subList(0, Math.min(ids.size(), SLICE));
            for (int i = 0; i < WARM_UP; i++) {
                LogAnswer.of(log);
                log.producers(some);
            }
            Holds holds = broker.logHolds;
            Map<String, Object> report = new LinkedHashMap<>();
            report.put("looks_too_long", holdTooLong(holds, () -> LogAnswer.of(log)) ? 1 : 0);
            int slices = 0;
            int found = 0;
            for (int from = 0; from < ids.size(); from += SLICE) {
                List<Long> slice = ids.subList(from, Math.min(from + SLICE, ids.size()));
                slices += holdTooLong(holds, () -> log.producers(slice)) ? 1 : 0;
                found += log.producers(slice).size();
            }
            report.put("slices_too_long", slices);
            report.put("found", found);
            report.put("holds", counts(holds).stream().mapToLong(Long::longValue).sum());
            report.put("segments", log.segments().size());
            report.put("answer", Json.write(LogAnswer.of(log)).length());
            return new SelfTest.Result("passed", Json.write(report));
        } catch (IOException | ReflectiveOperationException | Refusal e) {
            return new SelfTest.Result("failed", e.toString());
        }
    }

    private interface Work {
        Object run() throws IOException, Refusal;
    }

    /** Whether each try holds the lock for over 10 ms: a pause of the JVM or the machine is not in all of them. */
    private static boolean holdTooLong(Holds holds, Work work) throws IOException, Refusal {
        for (int i = 0; i < TRIES; i++) {
            List<Long> before = counts(holds);
            work.run();
            List<Long> after = counts(holds);
            if (after.subList(WITHIN, after.size()).equals(before.subList(WITHIN, before.size()))) {
                return false;
            }
        }
        return true;
    }

    @SuppressWarnings("unchecked")
    private static List<Long> counts(Holds holds) {
        return (List<Long>) holds.toJson().get("counts");
    }

    private static byte[] batch(long offset, long producer) {
        ByteBuffer batch = ByteBuffer.wrap(SelfTestData.batch(offset)).putLong(PRODUCER_AT, producer);
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), Frame.CHECKED_FROM, batch.capacity() - Frame.CHECKED_FROM);
        return batch.putInt(Frame.CHECKED_FROM - Integer.BYTES, (int) crc.getValue()).array();
    }
}
