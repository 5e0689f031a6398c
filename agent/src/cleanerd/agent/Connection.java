package cleanerd.agent;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One client: reads a line, writes the answer, and so on. Never interrupt its thread: the broker's code may be using files,
 * and an interrupt closes their channels. The thread ends when the socket is closed.
 */
final class Connection implements Runnable {
    static final int MOST_LINE_BYTES = 4 * 1024 * 1024;
    static final int SMALL_LINE_BYTES = 64 * 1024;

    /** A member {@code id} that follows only members without nested values. */
    private static final Pattern ID = Pattern.compile("\\s*\\{(?:\\s*\"[a-z_]+\"\\s*:\\s*(?:\\d+|\"[^\"\\\\]*\")\\s*,)*"
            + "\\s*\"id\"\\s*:\\s*(?:(\\d{1,18})|\"([^\"\\\\]{0,200})\")\\s*[,}]");
    private static final int HEAD_BYTES = 1024;

    private static final long LINE_SECONDS = 30;
    private static final long IDLE_SECONDS = 300;

    private final SocketChannel channel;
    private final Requests requests;
    private final Semaphore largeLines;
    private final Runnable onEnd;
    private final ByteBuffer buffer = ByteBuffer.allocate(16 * 1024);
    private volatile long deadline;
    private volatile boolean working;

    /** {@code largeLines}: permits for long lines, shared by all connections. */
    Connection(SocketChannel channel, Requests requests, Semaphore largeLines, Runnable onEnd) {
        this.channel = channel;
        this.requests = requests;
        this.largeLines = largeLines;
        this.onEnd = onEnd;
        buffer.limit(0);
        setDeadlineIn(LINE_SECONDS);
    }

    @Override
    public void run() {
        try (Session session = new Session()) {
            while (serve(session)) { }
        } catch (IOException e) {
            close(); // the client has disconnected, or was too slow
        } finally {
            close();
            onEnd.run();
        }
    }

    /** Closes the connection if the client is idle or sends a line for too long. */
    void closeIfLate(long nowNanos) {
        if (!working && nowNanos - deadline > 0) {
            close();
        }
    }

    boolean working() {
        return working;
    }

    void close() {
        try {
            channel.close();
        } catch (IOException e) {
            return; // there is nothing more to close
        }
    }

    /** Answers one line. Returns false if the connection has to end. */
    private boolean serve(Session session) throws IOException {
        boolean large = false;
        boolean refused = false;
        long bytes = 0;
        ByteArrayOutputStream line = new ByteArrayOutputStream(256);
        try {
            while (true) {
                int count = bytesBeforeNewline();
                boolean ends = count < buffer.remaining();
                if (!refused) {
                    line.write(buffer.array(), buffer.arrayOffset() + buffer.position(), count);
                }
                buffer.position(buffer.position() + count);
                if (ends) {
                    buffer.get();
                    return refused || answer(line, session);
                }
                bytes += count;
                if (bytes > MOST_LINE_BYTES) {
                    return refuse("bad_request", "the line is longer than " + MOST_LINE_BYTES + " bytes");
                }
                if (bytes > SMALL_LINE_BYTES && !large && !refused) {
                    large = largeLines.tryAcquire();
                    if (!large) {
                        refused = true; // answered at once; the rest of the line is skipped
                        send(Requests.refused(idOf(line), "busy", "other long requests are being read; try again later", null));
                        line.reset();
                    }
                }
                buffer.clear();
                int read = channel.read(buffer);
                buffer.flip();
                if (read < 0) {
                    return false;
                }
                if (bytes == 0) {
                    setDeadlineIn(LINE_SECONDS);
                }
            }
        } finally {
            if (large) {
                largeLines.release();
            }
        }
    }

    /** Bytes in the buffer before the next newline, or all bytes if there is none. */
    private int bytesBeforeNewline() {
        for (int at = buffer.position(); at < buffer.limit(); at++) {
            if (buffer.get(at) == '\n') {
                return at - buffer.position();
            }
        }
        return buffer.remaining();
    }

    /** The id of a request of which only the beginning was read; null if it is not in its first bytes. */
    private static Object idOf(ByteArrayOutputStream line) {
        byte[] bytes = line.toByteArray();
        Matcher matcher = ID.matcher(new String(bytes, 0, Math.min(bytes.length, HEAD_BYTES), StandardCharsets.US_ASCII));
        if (!matcher.lookingAt()) {
            return null;
        }
        return matcher.group(1) == null ? matcher.group(2) : Long.valueOf(matcher.group(1));
    }

    private boolean answer(ByteArrayOutputStream bytes, Session session) throws IOException {
        String line;
        try {
            line = StandardCharsets.UTF_8.newDecoder()
                    .onMalformedInput(CodingErrorAction.REPORT)
                    .onUnmappableCharacter(CodingErrorAction.REPORT)
                    .decode(ByteBuffer.wrap(bytes.toByteArray()))
                    .toString();
        } catch (CharacterCodingException e) {
            return refuse("bad_request", "the line is not valid UTF-8");
        }
        Map<String, Object> answer;
        working = true;
        try {
            answer = requests.answer(line, session);
        } finally {
            setDeadlineIn(LINE_SECONDS);
            working = false;
        }
        send(answer);
        setDeadlineIn(IDLE_SECONDS);
        return !"bad_request".equals(answer.get("code")) || answer.get("id") != null;
    }

    private boolean refuse(String code, String text) throws IOException {
        send(Requests.refused(null, code, text, null));
        return false;
    }

    private void send(Map<String, Object> answer) throws IOException {
        ByteBuffer out = ByteBuffer.wrap((Json.write(answer) + "\n").getBytes(StandardCharsets.US_ASCII));
        while (out.hasRemaining()) {
            channel.write(out);
        }
    }

    private void setDeadlineIn(long seconds) {
        deadline = System.nanoTime() + seconds * 1_000_000_000L;
    }
}
