package cleanerd.judge;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;

/** All batches of a partition directory in order, one in memory at a time. */
final class LogReader implements Iterator<BatchView>, AutoCloseable {
    private final Iterator<Map.Entry<Long, File>> segments;
    private long base;
    private FileRecords file;
    private Iterator<FileChannelRecordBatch> batches;
    private int end;

    LogReader(File directory) throws IOException {
        segments = Directories.segments(directory).entrySet().iterator();
    }

    /** One segment only. */
    LogReader(long base, File log) {
        segments = Map.of(base, log).entrySet().iterator();
    }

    @Override
    public boolean hasNext() {
        while (batches == null || !batches.hasNext()) {
            if (file != null && end != file.sizeInBytes()) {
                throw new IllegalStateException(
                        file.file() + ": " + (file.sizeInBytes() - end) + " bytes after the last batch");
            }
            close();
            if (!segments.hasNext()) {
                return false;
            }
            Map.Entry<Long, File> next = segments.next();
            base = next.getKey();
            end = 0;
            try {
                file = FileRecords.open(next.getValue(), false, true, 0, false);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            batches = file.batches().iterator();
        }
        return true;
    }

    @Override
    public BatchView next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        FileChannelRecordBatch found = batches.next();
        ByteBuffer bytes = ByteBuffer.allocate(found.sizeInBytes());
        try {
            file.readInto(bytes, found.position());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        end = found.position() + found.sizeInBytes();
        BatchView view = new BatchView(base, found.position(), bytes);
        view.last = !batches.hasNext();
        return view;
    }

    @Override
    public void close() {
        batches = null;
        if (file != null) {
            try {
                file.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            file = null;
        }
    }
}
