package cleanerd.agent;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/** Where clients come in, and the file that leads them there. */
interface Listener extends AutoCloseable {
    /** The file: a socket, or an announcement. */
    Path path();

    /** Where it listens, for the broker's log. */
    String address();

    /** Whether a client that looks for the file finds this listener. */
    boolean isThere();

    /** The next client, who may be served, whatever those do who may not. Waits for him. */
    SocketChannel accept() throws IOException;

    /** Removes the file, if it is still the one that was made here. */
    @Override
    void close() throws IOException;
}
