package cleanerd.agent;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;

/** In the place of the trial: how long the log's lock is held, in a log of many segments and producers. */
final class Measured {
    private static final int SEGMENTS = Integer.getInteger("cleanerd.test.segments");
    private static final int PRODUCERS = Integer.getInteger("cleanerd.test.producers");
    private static final int AT_ONCE = 1000;
    private static final int PRODUCER_AT = 43;
    private static final int WARM_UP = 100;
    private static final int TIMES = 200;

    private Measured() {}

    static Trial.Result of(Broker broker, TrialLog log) {
        try {
            long offset = log.logEndOffset();
            for (int i = 0; i < SEGMENTS; i++) {
                log.append(TrialData.batch(offset++));
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
            List<Long> some = ids.subList(0, Math.min(ids.size(), 20_000));
            Map<String, Object> told = new LinkedHashMap<>();
            for (int i = 0; i < WARM_UP; i++) {
                LogAnswer.of(log);
                log.producers(some);
            }
            Holds holds = broker.logHolds;
            Map<String, Object> before = holds.toJson();
            for (int i = 0; i < TIMES; i++) {
                LogAnswer.of(log);
            }
            told.put("look", List.of(before.get("counts"), holds.toJson().get("counts")));
            before = holds.toJson();
            told.put("found", log.producers(ids).size());
            told.put("producers", List.of(before.get("counts"), holds.toJson().get("counts")));
            told.put("segments", log.segments().size());
            told.put("answer", Json.write(LogAnswer.of(log)).length());
            return new Trial.Result("passed", Json.write(told));
        } catch (IOException | ReflectiveOperationException | Refusal e) {
            return new Trial.Result("failed", e.toString());
        }
    }

    private static byte[] batch(long offset, long producer) {
        ByteBuffer batch = ByteBuffer.wrap(TrialData.batch(offset)).putLong(PRODUCER_AT, producer);
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), Frame.CHECKED_FROM, batch.capacity() - Frame.CHECKED_FROM);
        return batch.putInt(Frame.CHECKED_FROM - Integer.BYTES, (int) crc.getValue()).array();
    }
}
