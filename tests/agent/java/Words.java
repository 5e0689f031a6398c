package cleanerd.agent;

import java.io.IOException;

/** What a trial says of failures in directories whose names are drawn by lot. */
public final class Words {
    private Words() {}

    public static void main(String[] failures) {
        for (String failure : failures) {
            System.out.println(Trial.inWords(new IOException(failure)));
        }
    }
}
