package scala.collection;

/** An iterator like Scala's, which is not one of Java's. */
public interface Iterator {
    boolean hasNext();

    Object next();
}
